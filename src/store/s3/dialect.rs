//! What each kind of store wants, told by its host: endpoint, addressing style, signing region, and quirks.
//!
//! All differences between stores are decided here, from the configuration, without asking the store; what the store says
//! later (another region) comes back through [`Site::moved`]. A store that is not known by its host is plain S3 in path style.

use std::fmt;
use std::str::FromStr;

use super::S3Config;
use super::address::{Address, Addressing, Endpoint};

/// A kind of store. Most differ in name only; the others say how at their methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Amazon S3.
    Aws,
    /// Alibaba Cloud OSS through its S3 API.
    Oss,
    /// Google Cloud Storage through its XML API, with HMAC keys.
    Gcs,
    /// Cloudflare R2.
    R2,
    /// Ceph's RADOS gateway.
    Ceph,
    /// MinIO.
    MinIo,
    /// SeaweedFS.
    SeaweedFs,
    /// Anything else that speaks S3.
    Generic,
}

const NAMES: &[(&str, Dialect)] = &[
    ("aws", Dialect::Aws),
    ("oss", Dialect::Oss),
    ("gcs", Dialect::Gcs),
    ("r2", Dialect::R2),
    ("ceph", Dialect::Ceph),
    ("minio", Dialect::MinIo),
    ("seaweedfs", Dialect::SeaweedFs),
    ("generic", Dialect::Generic),
];

/// A word that names no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no dialect: use aws, oss, gcs, r2, ceph, minio, seaweedfs or generic")]
pub struct ParseDialectError(String);

impl FromStr for Dialect {
    type Err = ParseDialectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        found.map(|(_, dialect)| *dialect).ok_or_else(|| ParseDialectError(text.to_owned()))
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, dialect)| dialect == self).map_or("generic", |(name, _)| name);
        f.write_str(name)
    }
}

impl Dialect {
    /// GCS unpacks objects stored with `Content-Encoding: gzip` unless the client says it takes gzip; then length and bytes
    /// would not be those listed. The header must not be signed: their front end changes it.
    pub(super) fn asks_for_stored_encoding(self) -> bool {
        self == Dialect::Gcs
    }

    /// R2 answers 403 when it means "slow down", too.
    pub(super) fn throttles_with_403(self) -> bool {
        self == Dialect::R2
    }

    /// AWS documents one entity tag per object, the same in LIST and GET, and honours `If-Match`.
    pub(super) fn has_one_etag_form(self) -> bool {
        self == Dialect::Aws
    }

    fn default_region(self) -> &'static str {
        match self {
            Dialect::R2 | Dialect::Gcs => "auto",
            // What S3 stores take when they have no regions; AWS answers with the right one.
            _ => "us-east-1",
        }
    }

    fn default_endpoint(self, region: Option<&str>) -> Option<String> {
        match self {
            Dialect::Aws => Some(aws_endpoint(region.unwrap_or(self.default_region()))),
            Dialect::Gcs => Some("https://storage.googleapis.com".to_owned()),
            Dialect::Oss => Some(format!("https://s3.oss-{}.aliyuncs.com", region?.trim_start_matches("oss-"))),
            _ => None,
        }
    }
}

/// Where a bucket is and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) dialect: Dialect,
    pub(super) endpoint: Endpoint,
    pub(super) region: String,
    pub(super) virtual_hosted: bool,
    pub(super) address: Address,
    bucket: String,
}

/// Why a configuration cannot work.
#[derive(Debug, thiserror::Error)]
pub enum S3ConfigError {
    /// The endpoint cannot be used.
    #[error("endpoint \"{endpoint}\": {reason}; write it as in https://s3.example.com or http://127.0.0.1:9000")]
    Endpoint {
        /// As typed.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This kind of store has no endpoint of its own.
    #[error("the {0} dialect needs the address of the store: give --endpoint-url")]
    NoEndpoint(Dialect),
    /// The bucket's name cannot be one.
    #[error("bucket \"{bucket}\": {reason}")]
    Bucket {
        /// As typed.
        bucket: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The style asked for cannot work with this store.
    #[error("{style} addressing does not work here: {reason}")]
    Addressing {
        /// The style asked for.
        style: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// A file of root certificates cannot be used.
    #[error("--ca-bundle {path}: {reason}")]
    CaBundle {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The HTTP client cannot be set up.
    #[error(
        "cannot set up TLS: {0}; is a package of root certificates (ca-certificates) installed, or --ca-bundle given?"
    )]
    Tls(String),
}

impl Site {
    /// Decides where requests go from what the user said.
    pub(super) fn resolve(config: &S3Config) -> Result<Site, S3ConfigError> {
        check_bucket(&config.bucket)?;
        let region = config.region.as_deref().filter(|region| !region.is_empty());
        let typed = match config.endpoint.as_deref().filter(|endpoint| !endpoint.trim().is_empty()) {
            Some(endpoint) => endpoint.to_owned(),
            None => {
                let dialect = config.dialect.unwrap_or(Dialect::Aws);
                dialect.default_endpoint(region).ok_or(S3ConfigError::NoEndpoint(dialect))?
            }
        };
        let mut endpoint =
            Endpoint::parse(&typed).map_err(|reason| S3ConfigError::Endpoint { endpoint: typed.clone(), reason })?;
        let known = KnownHost::of(&endpoint.host, &config.bucket);
        if let Some(host) = &known.host {
            endpoint.host.clone_from(host);
        }
        let dialect = config.dialect.unwrap_or(known.dialect);
        if dialect == Dialect::Aws && config.bucket.ends_with("--x-s3") || endpoint.host.starts_with("s3express-") {
            let reason =
                "directory buckets (S3 Express One Zone) need session credentials, which streamvol does not have";
            return Err(S3ConfigError::Bucket { bucket: config.bucket.clone(), reason });
        }
        let virtual_hosted = choose_style(config, &endpoint, dialect, known.style)?;
        let region = region.or(known.region.as_deref()).unwrap_or(dialect.default_region()).to_owned();
        let address = Address::new(&endpoint, &config.bucket, virtual_hosted);
        Ok(Site { dialect, endpoint, region, virtual_hosted, address, bucket: config.bucket.clone() })
    }

    /// The site after the store said that the bucket is in `region`, or at `host`; `None` if that is nothing new.
    ///
    /// Only hosts of the same provider are followed: a request carries a signature and perhaps a session token.
    pub(super) fn moved(&self, region: Option<&str>, host: Option<&str>) -> Option<Site> {
        let named = host.map(|host| KnownHost::of(&host.to_ascii_lowercase(), &self.bucket));
        let named = named.filter(|known| known.dialect == self.dialect && known.dialect != Dialect::Generic);
        let from_host = named.as_ref().and_then(|known| known.region.as_deref());
        // Only AWS puts it into a host name; others call theirs anything.
        let is_valid = |region: &&str| if self.dialect == Dialect::Aws { is_region(region) } else { is_label(region) };
        let region = region.filter(is_valid).or(from_host);
        let mut endpoint = self.endpoint.clone();
        if let Some(host) = self.host_in_region(region, named.as_ref()) {
            endpoint.host = host;
        }
        let region = region.unwrap_or(&self.region).to_owned();
        let address = Address::new(&endpoint, &self.bucket, self.virtual_hosted);
        let moved = Site { endpoint, region, address, ..self.clone() };
        (moved != *self).then_some(moved)
    }

    fn host_in_region(&self, region: Option<&str>, named: Option<&KnownHost>) -> Option<String> {
        match self.dialect {
            Dialect::Oss => named?.host.clone(),
            Dialect::Aws => {
                let aws = AwsHost::parse(&self.endpoint.host)?;
                // An endpoint in a VPC, or for acceleration, is kept: another could not be reached, or be wanted.
                if aws.is_special { None } else { region.map(|region| aws.in_region(region)) }
            }
            _ => None,
        }
    }
}

fn choose_style(
    config: &S3Config,
    endpoint: &Endpoint,
    dialect: Dialect,
    required: Option<Addressing>,
) -> Result<bool, S3ConfigError> {
    let refuse = |style, reason| Err(S3ConfigError::Addressing { style, reason });
    match (config.addressing, required) {
        (Addressing::Path, Some(Addressing::VirtualHosted)) => {
            refuse("path-style", "this store only answers virtual-hosted requests; leave --path-style out")
        }
        (Addressing::Path, _) => Ok(false),
        (Addressing::VirtualHosted, _) if endpoint.is_ip() => {
            refuse("virtual-hosted", "the endpoint is an IP address; give a host name or use --path-style")
        }
        (Addressing::VirtualHosted, _) => Ok(true),
        (Addressing::Auto, Some(Addressing::VirtualHosted)) => Ok(true),
        (Addressing::Auto, _) => {
            let wanted = matches!(dialect, Dialect::Aws | Dialect::Oss) && !endpoint.is_ip();
            // A certificate for *.example.com does not cover my.bucket.example.com.
            let dotted = config.bucket.contains('.') && endpoint.https;
            Ok(wanted && !dotted && is_dns_name(&config.bucket))
        }
    }
}

fn check_bucket(bucket: &str) -> Result<(), S3ConfigError> {
    let refuse = |reason| Err(S3ConfigError::Bucket { bucket: bucket.to_owned(), reason });
    if bucket.is_empty() {
        return refuse("the name is missing; write s3://BUCKET/PREFIX");
    }
    if bucket.starts_with("arn:") {
        return refuse("an ARN is no bucket name; give the access point's alias, which ends in -s3alias");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !bucket.bytes().all(plain) || bucket == "." || bucket == ".." {
        return refuse("a bucket's name has only letters, digits, '-', '.' and '_'");
    }
    Ok(())
}

fn is_dns_name(bucket: &str) -> bool {
    bucket.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    })
}

/// As in `eu-west-1`, `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    is_label(label) && label.contains('-') && label.ends_with(|c: char| c.is_ascii_digit())
}

/// What may stand in a signature's scope without being taken for another part of it.
fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(plain)
}

/// What a host name gives away.
#[derive(Debug)]
struct KnownHost {
    dialect: Dialect,
    /// The host to use instead, without the bucket.
    host: Option<String>,
    region: Option<String>,
    /// The only style the store answers.
    style: Option<Addressing>,
}

/// Hosted stores: end of the host, what stands before the region, dialect, style if there is only one.
/// From the providers' own lists of endpoints.
const HOSTED: &[(&str, &str, Dialect, Option<Addressing>)] = &[
    (".r2.cloudflarestorage.com", "", Dialect::R2, None),
    ("storage.googleapis.com", "", Dialect::Gcs, None),
    (".wasabisys.com", "s3.", Dialect::Generic, None),
    (".backblazeb2.com", "s3.", Dialect::Generic, None),
    (".digitaloceanspaces.com", "", Dialect::Generic, None),
    (".scw.cloud", "s3.", Dialect::Generic, None),
    (".myqcloud.com", "cos.", Dialect::Generic, Some(Addressing::VirtualHosted)),
    (".volces.com", "tos-s3-", Dialect::Generic, Some(Addressing::VirtualHosted)),
    (".myhuaweicloud.com", "obs.", Dialect::Generic, Some(Addressing::VirtualHosted)),
];

impl KnownHost {
    fn of(host: &str, bucket: &str) -> KnownHost {
        let bare = host.strip_prefix(bucket).and_then(|rest| rest.strip_prefix('.')).unwrap_or(host);
        if let Some(rest) = bare.strip_suffix(".aliyuncs.com") {
            return KnownHost::oss(rest);
        }
        if let Some(aws) = AwsHost::parse(bare) {
            let region = aws.region.map(str::to_owned);
            return KnownHost { dialect: Dialect::Aws, host: Some(bare.to_owned()), region, style: None };
        }
        for (suffix, lead, dialect, style) in HOSTED {
            let Some(rest) = bare.strip_suffix(suffix) else { continue };
            // R2 and GCS have one region only ("auto"), whatever stands in the host.
            let region = rest.strip_prefix(lead).filter(|label| *dialect == Dialect::Generic && !label.is_empty());
            let region = region.map(str::to_owned);
            return KnownHost { dialect: *dialect, host: Some(bare.to_owned()), region, style: *style };
        }
        KnownHost { dialect: Dialect::Generic, host: None, region: None, style: None }
    }

    /// OSS speaks S3 on hosts that begin with `s3.` and answers virtual-hosted requests only.
    fn oss(rest: &str) -> KnownHost {
        let rest = rest.strip_prefix("s3.").unwrap_or(rest);
        // The older spelling of an internal endpoint.
        let rest = rest.strip_prefix("vpc100-").map_or_else(|| rest.to_owned(), |rest| format!("{rest}-internal"));
        let region = rest.strip_prefix("oss-").map(|region| region.trim_end_matches("-internal"));
        let region = region.filter(|region| !region.starts_with("accelerate")).map(str::to_owned);
        let host = Some(format!("s3.{rest}.aliyuncs.com"));
        KnownHost { dialect: Dialect::Oss, host, region, style: Some(Addressing::VirtualHosted) }
    }
}

fn aws_endpoint(region: &str) -> String {
    let partition = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://s3.{region}.{partition}")
}

/// A host of Amazon S3, without a bucket in front.
#[derive(Debug)]
struct AwsHost<'a> {
    host: &'a str,
    region: Option<&'a str>,
    /// Not one of the public regional endpoints.
    is_special: bool,
}

impl<'a> AwsHost<'a> {
    fn parse(host: &'a str) -> Option<AwsHost<'a>> {
        let rest = host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
        let is_service = |label: &str| label == "s3" || label.starts_with("s3-") || label.starts_with("s3express-");
        let labels = rest.split('.');
        if !labels.clone().any(is_service) {
            return None;
        }
        // The older spelling has the region in the same label: s3-eu-west-1.
        let mut candidates = labels.map(|label| label.strip_prefix("s3-").unwrap_or(label));
        let region = candidates.rfind(|label| !label.starts_with("s3") && is_region(label));
        let is_special = rest.contains("vpce") || rest.contains("accelerate") || rest.contains("s3express");
        Some(AwsHost { host, region, is_special })
    }

    fn in_region(&self, region: &str) -> String {
        let Some(old) = self.region else {
            return aws_endpoint(region).trim_start_matches("https://").to_owned();
        };
        self.host.replacen(old, region, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endpoint: Option<&str>, bucket: &str) -> S3Config {
        S3Config { endpoint: endpoint.map(str::to_owned), ..S3Config::new(bucket) }
    }

    fn site(endpoint: &str, bucket: &str) -> Site {
        Site::resolve(&config(Some(endpoint).filter(|text| !text.is_empty()), bucket)).unwrap()
    }

    fn url(site: &Site) -> String {
        let url = site.address.object(&"k".into()).to_url().unwrap();
        url.as_str().to_owned()
    }

    /// Endpoint, dialect, region, URL of the object "k" in the bucket "bkt".
    const HOSTS: &[(&str, Dialect, &str, &str)] = &[
        ("", Dialect::Aws, "us-east-1", "https://bkt.s3.us-east-1.amazonaws.com/k"),
        ("https://s3.amazonaws.com", Dialect::Aws, "us-east-1", "https://bkt.s3.amazonaws.com/k"),
        ("s3.eu-west-1.amazonaws.com", Dialect::Aws, "eu-west-1", "https://bkt.s3.eu-west-1.amazonaws.com/k"),
        ("https://s3-eu-west-1.amazonaws.com/", Dialect::Aws, "eu-west-1", "https://bkt.s3-eu-west-1.amazonaws.com/k"),
        (
            "https://bkt.s3.eu-west-1.amazonaws.com",
            Dialect::Aws,
            "eu-west-1",
            "https://bkt.s3.eu-west-1.amazonaws.com/k",
        ),
        (
            "https://s3.dualstack.us-gov-west-1.amazonaws.com",
            Dialect::Aws,
            "us-gov-west-1",
            "https://bkt.s3.dualstack.us-gov-west-1.amazonaws.com/k",
        ),
        (
            "https://s3-fips.us-east-2.amazonaws.com",
            Dialect::Aws,
            "us-east-2",
            "https://bkt.s3-fips.us-east-2.amazonaws.com/k",
        ),
        (
            "https://s3.cn-north-1.amazonaws.com.cn",
            Dialect::Aws,
            "cn-north-1",
            "https://bkt.s3.cn-north-1.amazonaws.com.cn/k",
        ),
        (
            "https://bucket.vpce-1a2b-3c4d.s3.eu-west-1.vpce.amazonaws.com",
            Dialect::Aws,
            "eu-west-1",
            "https://bkt.bucket.vpce-1a2b-3c4d.s3.eu-west-1.vpce.amazonaws.com/k",
        ),
        ("oss-cn-beijing.aliyuncs.com", Dialect::Oss, "cn-beijing", "https://bkt.s3.oss-cn-beijing.aliyuncs.com/k"),
        (
            "oss-cn-beijing-internal.aliyuncs.com",
            Dialect::Oss,
            "cn-beijing",
            "http://bkt.s3.oss-cn-beijing-internal.aliyuncs.com/k",
        ),
        (
            "https://oss-cn-beijing-internal.aliyuncs.com/",
            Dialect::Oss,
            "cn-beijing",
            "https://bkt.s3.oss-cn-beijing-internal.aliyuncs.com/k",
        ),
        (
            "bkt.oss-us-west-1-internal.aliyuncs.com",
            Dialect::Oss,
            "us-west-1",
            "http://bkt.s3.oss-us-west-1-internal.aliyuncs.com/k",
        ),
        (
            "http://s3.oss-cn-hangzhou.aliyuncs.com",
            Dialect::Oss,
            "cn-hangzhou",
            "http://bkt.s3.oss-cn-hangzhou.aliyuncs.com/k",
        ),
        (
            "http://vpc100-oss-cn-beijing.aliyuncs.com",
            Dialect::Oss,
            "cn-beijing",
            "http://bkt.s3.oss-cn-beijing-internal.aliyuncs.com/k",
        ),
        ("oss-accelerate.aliyuncs.com", Dialect::Oss, "us-east-1", "https://bkt.s3.oss-accelerate.aliyuncs.com/k"),
        ("https://storage.googleapis.com", Dialect::Gcs, "auto", "https://storage.googleapis.com/bkt/k"),
        ("https://acc.r2.cloudflarestorage.com", Dialect::R2, "auto", "https://acc.r2.cloudflarestorage.com/bkt/k"),
        (
            "https://acc.eu.r2.cloudflarestorage.com",
            Dialect::R2,
            "auto",
            "https://acc.eu.r2.cloudflarestorage.com/bkt/k",
        ),
        (
            "s3.eu-central-2.wasabisys.com",
            Dialect::Generic,
            "eu-central-2",
            "https://s3.eu-central-2.wasabisys.com/bkt/k",
        ),
        ("https://ams3.digitaloceanspaces.com", Dialect::Generic, "ams3", "https://ams3.digitaloceanspaces.com/bkt/k"),
        (
            "https://tos-s3-cn-beijing.volces.com",
            Dialect::Generic,
            "cn-beijing",
            "https://bkt.tos-s3-cn-beijing.volces.com/k",
        ),
        ("http://minio.svc:9000/base/", Dialect::Generic, "us-east-1", "http://minio.svc:9000/base/bkt/k"),
        ("http://[::1]:9000", Dialect::Generic, "us-east-1", "http://[::1]:9000/bkt/k"),
    ];

    #[test]
    fn a_store_is_known_by_its_host() {
        for (endpoint, dialect, region, expected) in HOSTS {
            let site = site(endpoint, "bkt");
            assert_eq!((site.dialect, site.region.as_str()), (*dialect, *region), "{endpoint}");
            assert_eq!(url(&site), *expected, "{endpoint}");
        }
    }

    #[test]
    fn what_the_user_says_wins_over_the_host() {
        let mut config = config(Some("http://gateway.example"), "bkt");
        config.dialect = Some(Dialect::Ceph);
        config.region = Some("zone-1".into());
        config.addressing = Addressing::VirtualHosted;
        let site = Site::resolve(&config).unwrap();
        assert_eq!((site.dialect, site.region.as_str()), (Dialect::Ceph, "zone-1"));
        assert_eq!(url(&site), "http://bkt.gateway.example/k");
    }

    #[test]
    fn a_region_alone_names_the_endpoint_of_aws_and_oss() {
        let mut config = config(None, "bkt");
        config.region = Some("cn-north-1".into());
        assert_eq!(url(&Site::resolve(&config).unwrap()), "https://bkt.s3.cn-north-1.amazonaws.com.cn/k");
        config.dialect = Some(Dialect::Oss);
        assert_eq!(url(&Site::resolve(&config).unwrap()), "https://bkt.s3.oss-cn-north-1.aliyuncs.com/k");
        config.dialect = Some(Dialect::MinIo);
        assert!(matches!(Site::resolve(&config), Err(S3ConfigError::NoEndpoint(Dialect::MinIo))));
    }

    #[test]
    fn buckets_that_no_host_name_or_certificate_covers_use_path_style() {
        assert_eq!(url(&site("", "my.bucket")), "https://s3.us-east-1.amazonaws.com/my.bucket/k");
        assert_eq!(
            url(&site("http://s3.eu-west-1.amazonaws.com", "my.bucket")),
            "http://my.bucket.s3.eu-west-1.amazonaws.com/k"
        );
        assert_eq!(url(&site("", "Old_Bucket")), "https://s3.us-east-1.amazonaws.com/Old_Bucket/k");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_reason() {
        let refused = |endpoint: Option<&str>, bucket: &str, addressing| {
            let config = S3Config { addressing, ..config(endpoint, bucket) };
            Site::resolve(&config).unwrap_err().to_string()
        };
        let auto = Addressing::Auto;
        for (endpoint, bucket, addressing, reason) in [
            (None, "", auto, "missing"),
            (None, "a/b", auto, "only letters"),
            (None, "arn:aws:s3:eu-west-1:1:accesspoint/x", auto, "alias"),
            (None, "data--use1-az4--x-s3", auto, "directory buckets"),
            (Some("ftp://x"), "bkt", auto, "not http or https"),
            (Some("oss-cn-beijing.aliyuncs.com"), "bkt", Addressing::Path, "leave --path-style out"),
            (Some("http://10.0.0.1:9000"), "bkt", Addressing::VirtualHosted, "IP address"),
        ] {
            let said = refused(endpoint, bucket, addressing);
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn a_bucket_elsewhere_is_followed_within_its_provider_only() {
        let us = site("", "bkt");
        let moved = us.moved(Some("eu-west-1"), None).unwrap();
        assert_eq!(
            (url(&moved).as_str(), moved.region.as_str()),
            ("https://bkt.s3.eu-west-1.amazonaws.com/k", "eu-west-1")
        );
        assert_eq!(moved.moved(Some("eu-west-1"), None), None);
        let by_host = us.moved(None, Some("bkt.s3-ap-south-1.amazonaws.com")).unwrap();
        assert_eq!(url(&by_host), "https://bkt.s3.ap-south-1.amazonaws.com/k");
        let global = site("https://s3.amazonaws.com", "bkt").moved(Some("eu-west-1"), None).unwrap();
        assert_eq!(url(&global), "https://bkt.s3.eu-west-1.amazonaws.com/k");
        for host in ["evil.example.com", "bkt.s3.oss-cn-beijing.aliyuncs.com", "s3.amazonaws.com.evil.example"] {
            assert_eq!(us.moved(None, Some(host)), None, "{host}");
        }
        assert_eq!(us.moved(Some("x.evil.example/1"), None), None);
        assert_eq!(us.moved(Some("evil"), None), None);
        let vpc = site("https://vpce-1.s3.us-east-1.vpce.amazonaws.com", "bkt").moved(Some("eu-west-1"), None).unwrap();
        assert_eq!(
            (vpc.endpoint.host.as_str(), vpc.region.as_str()),
            ("vpce-1.s3.us-east-1.vpce.amazonaws.com", "eu-west-1")
        );
        let oss = site("oss-cn-beijing.aliyuncs.com", "bkt").moved(None, Some("oss-cn-shanghai.aliyuncs.com")).unwrap();
        assert_eq!(
            (url(&oss).as_str(), oss.region.as_str()),
            ("https://bkt.s3.oss-cn-shanghai.aliyuncs.com/k", "cn-shanghai")
        );
        let other = site("http://127.0.0.1:9000", "bkt").moved(Some("garage"), None).unwrap();
        assert_eq!((url(&other).as_str(), other.region.as_str()), ("http://127.0.0.1:9000/bkt/k", "garage"));
    }

    #[test]
    fn dialects_are_given_back_by_name() {
        for (name, dialect) in NAMES {
            assert_eq!(name.parse::<Dialect>().unwrap(), *dialect);
            assert_eq!(dialect.to_string(), *name);
        }
        assert!("azure".parse::<Dialect>().unwrap_err().to_string().contains("seaweedfs"));
    }
}
