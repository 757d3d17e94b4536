//! The bucket and how to reach it.

use super::{STORE_VERBS, SWITCH};
use crate::config::parse;
use crate::config::row::{DefaultValue, Kind, OptionRow, Section};
use crate::store::s3::Dialect;

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[
    ENDPOINT_URL,
    REGION,
    PATH_STYLE,
    VIRTUAL_HOSTED,
    DIALECT,
    CA_BUNDLE,
    NO_SIGN_REQUEST,
    PROFILE,
    REQUESTER_PAYS,
    RETRY_DEADLINE,
];

const STORE: OptionRow = OptionRow { section: Section::Store, verbs: STORE_VERBS, ..SWITCH };

const ENDPOINT_URL: OptionRow = OptionRow {
    name: "endpoint-url",
    environment: "STREAMVOL_ENDPOINT_URL",
    ambient: &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
    kind: Kind::Value("URL"),
    default: DefaultValue::Derived("AWS, or what the scheme of the bucket's address says"),
    help: "Address of the store, for everything but AWS",
    set: |typed, given| given.store_some(&mut typed.endpoint_url, parse::endpoint),
    ..STORE
};

#[test]
fn endpoint_url_is_kept_as_typed() {
    let typed = parsed(&ENDPOINT_URL, "http://127.0.0.1:9000/").unwrap();
    assert_eq!(typed.endpoint_url.value.as_deref(), Some("http://127.0.0.1:9000/"));
    assert_eq!(
        parsed(&ENDPOINT_URL, "s3://bucket").unwrap_err(),
        "s3 is not spoken: write http:// or https:// and the host"
    );
}

const REGION: OptionRow = OptionRow {
    name: "region",
    environment: "STREAMVOL_REGION",
    ambient: &["AWS_REGION", "AWS_DEFAULT_REGION"],
    kind: Kind::Value("REGION"),
    default: DefaultValue::Derived("the profile's, or what the store answers"),
    help: "Region of the bucket",
    set: |typed, given| given.store_some(&mut typed.region, parse::text),
    ..STORE
};

#[test]
fn region_is_any_text() {
    assert_eq!(parsed(&REGION, "eu-central-1").unwrap().region.value.as_deref(), Some("eu-central-1"));
    assert_eq!(parsed(&REGION, "").unwrap_err(), "it must not be empty");
}

const PATH_STYLE: OptionRow = OptionRow {
    name: "path-style",
    aliases: &["force-path-style"],
    environment: "STREAMVOL_PATH_STYLE",
    conflicts: &["virtual-hosted"],
    help: "Put the bucket into the path of requests (default: as the store needs it)",
    set: |typed, given| given.store(&mut typed.path_style, parse::boolean),
    ..STORE
};

#[test]
fn path_style_is_a_switch() {
    assert!(parsed(&PATH_STYLE, "true").unwrap().path_style.value);
    assert_eq!(parsed(&PATH_STYLE, "maybe").unwrap_err(), "write true or false");
}

const VIRTUAL_HOSTED: OptionRow = OptionRow {
    name: "virtual-hosted",
    environment: "STREAMVOL_VIRTUAL_HOSTED",
    conflicts: &["path-style"],
    help: "Put the bucket into the host name of requests (default: as the store needs it)",
    set: |typed, given| given.store(&mut typed.virtual_hosted, parse::boolean),
    ..STORE
};

#[test]
fn virtual_hosted_is_a_switch() {
    assert!(parsed(&VIRTUAL_HOSTED, "true").unwrap().virtual_hosted.value);
}

/// Names of the dialects; `auto` takes the one that fits the host.
const DIALECTS: &[(&str, Option<Dialect>)] = &[
    ("auto", None),
    ("aws", Some(Dialect::Aws)),
    ("oss", Some(Dialect::Oss)),
    ("gcs", Some(Dialect::Gcs)),
    ("r2", Some(Dialect::R2)),
    ("ceph", Some(Dialect::Ceph)),
    ("minio", Some(Dialect::MinIo)),
    ("seaweedfs", Some(Dialect::SeaweedFs)),
    ("generic", Some(Dialect::Generic)),
];

const DIALECT: OptionRow = OptionRow {
    name: "dialect",
    environment: "STREAMVOL_DIALECT",
    kind: Kind::Choice(&["auto", "aws", "oss", "gcs", "r2", "ceph", "minio", "seaweedfs", "generic"]),
    default: DefaultValue::Text("auto"),
    help: "Whose S3 the store speaks; auto goes by its host name",
    set: |typed, given| given.store(&mut typed.dialect, |text| parse::choice(text, DIALECTS)),
    ..STORE
};

#[test]
fn dialect_is_one_of_the_known_stores() {
    assert_eq!(parsed(&DIALECT, "auto").unwrap().dialect.value, None);
    assert_eq!(parsed(&DIALECT, "OSS").unwrap().dialect.value, Some(Dialect::Oss));
    assert_eq!(
        parsed(&DIALECT, "azure").unwrap_err(),
        "write one of auto, aws, oss, gcs, r2, ceph, minio, seaweedfs, generic"
    );
    let words: Vec<&str> = DIALECTS.iter().map(|&(word, _)| word).collect();
    assert!(matches!(DIALECT.kind, Kind::Choice(choices) if choices == words));
}

const CA_BUNDLE: OptionRow = OptionRow {
    name: "ca-bundle",
    environment: "STREAMVOL_CA_BUNDLE",
    ambient: &["AWS_CA_BUNDLE"],
    kind: Kind::Value("FILE"),
    default: DefaultValue::Derived("the system's certificates"),
    help: "PEM file with the certificates to trust",
    set: |typed, given| given.store_some(&mut typed.ca_bundle, parse::path),
    ..STORE
};

#[test]
fn ca_bundle_is_a_path() {
    let typed = parsed(&CA_BUNDLE, "certs/ca.pem").unwrap();
    assert_eq!(typed.ca_bundle.value.as_deref(), Some(std::path::Path::new("certs/ca.pem")));
}

const NO_SIGN_REQUEST: OptionRow = OptionRow {
    name: "no-sign-request",
    environment: "STREAMVOL_NO_SIGN_REQUEST",
    conflicts: &["profile"],
    help: "Send requests unsigned, as to a public bucket; no credentials are looked for",
    set: |typed, given| given.store(&mut typed.no_sign_request, parse::boolean),
    ..STORE
};

#[test]
fn no_sign_request_is_a_switch() {
    assert!(parsed(&NO_SIGN_REQUEST, "true").unwrap().no_sign_request.value);
}

const PROFILE: OptionRow = OptionRow {
    name: "profile",
    // AWS_PROFILE is left to the AWS chain: there, keys in the environment come before it, while a profile asked of us is the only place.
    environment: "STREAMVOL_PROFILE",
    kind: Kind::Value("NAME"),
    default: DefaultValue::Derived("the usual chain of AWS tools, AWS_PROFILE included"),
    conflicts: &["no-sign-request"],
    help: "Profile of the AWS configuration files to take credentials from",
    set: |typed, given| given.store_some(&mut typed.profile, parse::text),
    ..STORE
};

#[test]
fn profile_is_any_text() {
    assert_eq!(parsed(&PROFILE, "work").unwrap().profile.value.as_deref(), Some("work"));
}

/// AWS_PROFILE once made a profile the only place to look, so that good keys in the environment were not used.
#[test]
fn a_profile_in_the_environment_of_aws_is_not_one_that_was_asked_for() {
    assert!(PROFILE.ambient.is_empty());
}

const REQUESTER_PAYS: OptionRow = OptionRow {
    name: "requester-pays",
    environment: "STREAMVOL_REQUESTER_PAYS",
    help: "Agree to pay for requests to a bucket that asks for it",
    set: |typed, given| given.store(&mut typed.requester_pays, parse::boolean),
    ..STORE
};

#[test]
fn requester_pays_is_a_switch() {
    assert!(parsed(&REQUESTER_PAYS, "true").unwrap().requester_pays.value);
}

const RETRY_DEADLINE: OptionRow = OptionRow {
    name: "retry-deadline",
    environment: "STREAMVOL_RETRY_DEADLINE",
    kind: Kind::Value("DURATION"),
    default: DefaultValue::Text("5m"),
    help: "How long a failing request is tried again before the reader gets an error",
    set: |typed, given| given.store(&mut typed.retry_deadline, parse::duration),
    ..STORE
};

#[test]
fn retry_deadline_is_a_duration() {
    let seconds = |text| parsed(&RETRY_DEADLINE, text).map(|typed| typed.retry_deadline.value.as_secs());
    assert_eq!(seconds("5m"), Ok(300));
    assert_eq!(seconds("5"), Err("write a number and a unit, as in 500ms, 30s, 5m or 1h".to_owned()));
}
