//! From what was typed to what is meant: the small `Config` of each module, with everything derived that a default leaves open.
//!
//! A pure function of options, address and host, so that every error a user can meet here is met in a test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::layers::OptionError;
use super::machine::Machine;
use super::options::LEAST_MEMORY;
use super::typed::Typed;
use super::uri::{BucketUri, Scheme};
use crate::fuse::{AttributeConfig, FuseConfig};
use crate::handoff::UnmountMode;
use crate::model::{ByteSize, GIB};
use crate::read::ReadConfig;
use crate::store::credentials::{AlibabaEnvironment, CredentialsConfig, ProviderOrder};
use crate::store::retry::RetryConfig;
use crate::store::s3::{Addressing, Dialect, S3Config, Timeouts};
use crate::telemetry::log::LogLevel;
use crate::worker::{NamespaceConfig, StoreConfig, VolumeConfig};

/// GETs in flight for each CPU to start with: 6,000 files/s at 35 ms need 210.
const GETS_IN_FLIGHT_PER_CPU: usize = 128;

/// The kernel's read-ahead, in KiB: what the longest read it sends can carry.
const READ_AHEAD_KB: u32 = 1024;

/// The same in direct mode, where reading ahead too far costs bytes nobody asked for: the kernel's own default.
const DIRECT_READ_AHEAD_KB: u32 = 128;

/// Largest pool that is taken without being asked for.
const DEFAULT_POOL: ByteSize = ByteSize(GIB);

/// Part of the memory that the pool takes by default.
const POOL_SHARE: u64 = 4;

/// What is the same for every verb: where this process runs, and as whom.
#[derive(Debug, Clone)]
pub struct Host {
    /// Memory and CPUs.
    pub machine: Machine,
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// What relative paths begin at.
    pub directory: PathBuf,
    /// Where Alibaba Cloud's variables say that credentials are.
    pub alibaba: AlibabaEnvironment,
}

/// What `mount` is to do.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// The volume.
    pub volume: VolumeConfig,
    /// Stay in the foreground.
    pub foreground: bool,
    /// How much is logged.
    pub log_level: LogLevel,
    /// The file that was asked for; absolute.
    pub log_file: Option<PathBuf>,
}

/// What `ls` and `stat` are to do.
#[derive(Debug, Clone)]
pub struct BrowseSettings {
    /// The volume that would be mounted.
    pub volume: VolumeConfig,
    /// Descend into directories.
    pub recursive: bool,
    /// How much is logged.
    pub log_level: LogLevel,
}

/// What `demo` is to do.
#[derive(Debug, Clone)]
pub struct DemoConfig {
    /// Where to mount; a new directory when there is none.
    pub mountpoint: Option<PathBuf>,
    /// How long the made-up store waits before it answers a GET.
    pub latency: Duration,
    /// Pictures in the made-up data set.
    pub images: u32,
    /// How the made-up bucket is listed.
    pub namespace: NamespaceConfig,
    /// How it is read.
    pub read: ReadConfig,
    /// How the mount looks and is served.
    pub fuse: FuseConfig,
    /// How much is logged.
    pub log_level: LogLevel,
}

/// What `mount` with these options means.
///
/// # Errors
/// When the options do not fit the address.
pub fn mount(typed: &Typed, uri: &BucketUri, host: &Host) -> Result<MountSettings, OptionError> {
    Ok(MountSettings {
        volume: volume(typed, uri, host)?,
        foreground: typed.foreground.value,
        log_level: typed.log_level.value,
        log_file: typed.log_file.value.as_deref().map(|path| host.directory.join(path)),
    })
}

/// What `ls` and `stat` with these options mean.
///
/// # Errors
/// When the options do not fit the address.
pub fn browse(typed: &Typed, uri: &BucketUri, host: &Host) -> Result<BrowseSettings, OptionError> {
    Ok(BrowseSettings {
        volume: volume(typed, uri, host)?,
        recursive: typed.recursive.value,
        log_level: quiet_log_level(typed),
    })
}

/// What `demo` with these options means.
#[must_use]
pub fn demo(typed: &Typed, mountpoint: Option<&Path>, host: &Host) -> DemoConfig {
    DemoConfig {
        mountpoint: mountpoint.map(|path| host.directory.join(path)),
        latency: typed.latency.value,
        images: typed.images.value,
        namespace: namespace(typed),
        read: read(typed, host),
        fuse: fuse(typed, host),
        log_level: quiet_log_level(typed),
    }
}

/// What `unmount` with these options means.
#[must_use]
pub fn unmount(typed: &Typed) -> UnmountMode {
    if typed.force.value {
        UnmountMode::Force
    } else if typed.lazy.value {
        UnmountMode::Lazy
    } else {
        UnmountMode::Orderly
    }
}

fn volume(typed: &Typed, uri: &BucketUri, host: &Host) -> Result<VolumeConfig, OptionError> {
    let prefix = uri.directory_prefix();
    let shown = BucketUri { prefix: prefix.clone(), ..uri.clone() };
    Ok(VolumeConfig {
        store: store(typed, uri, host)?,
        prefix,
        namespace: namespace(typed),
        read: read(typed, host),
        fuse: fuse(typed, host),
        source_name: shown.to_string(),
    })
}

fn store(typed: &Typed, uri: &BucketUri, host: &Host) -> Result<StoreConfig, OptionError> {
    let addressing = match (typed.path_style.value, typed.virtual_hosted.value) {
        (true, _) => Addressing::Path,
        (false, true) => Addressing::VirtualHosted,
        (false, false) => Addressing::Auto,
    };
    let s3 = S3Config {
        endpoint: endpoint(typed, uri)?,
        bucket: uri.bucket.clone(),
        region: typed.region.value.clone(),
        addressing,
        dialect: typed.dialect.value.or(scheme_dialect(uri.scheme)),
        requester_pays: typed.requester_pays.value,
        ca_bundle: typed.ca_bundle.value.as_deref().map(|path| host.directory.join(path)),
        timeouts: Timeouts::default(),
    };
    Ok(StoreConfig {
        credentials: CredentialsConfig {
            anonymous: typed.no_sign_request.value,
            profile: typed.profile.value.clone(),
            region_hint: typed.region.value.clone(),
            order: provider_order(&s3),
            alibaba: host.alibaba.clone(),
            fixed: None,
        },
        s3,
        retry: RetryConfig { deadline: typed.retry_deadline.value, ..RetryConfig::default() },
    })
}

/// The dialect an address asks for by its scheme.
fn scheme_dialect(scheme: Scheme) -> Option<Dialect> {
    match scheme {
        Scheme::S3 => None,
        Scheme::Oss => Some(Dialect::Oss),
        Scheme::Gs => Some(Dialect::Gcs),
    }
}

/// Whose credentials come first: those of the cloud that the store belongs to.
fn provider_order(s3: &S3Config) -> ProviderOrder {
    let aliyun = s3.endpoint.as_deref().is_some_and(|endpoint| endpoint.to_ascii_lowercase().contains(".aliyuncs.com"));
    if s3.dialect == Some(Dialect::Oss) || (s3.dialect.is_none() && aliyun) {
        ProviderOrder::AlibabaFirst
    } else {
        ProviderOrder::AwsFirst
    }
}

/// The endpoint; `None` is AWS. An address with a scheme of its own never falls back to AWS.
fn endpoint(typed: &Typed, uri: &BucketUri) -> Result<Option<String>, OptionError> {
    if typed.endpoint_url.value.is_some() {
        return Ok(typed.endpoint_url.value.clone());
    }
    match (uri.scheme, &typed.region.value) {
        (Scheme::S3, _) => Ok(None),
        (Scheme::Gs, _) => Ok(Some("https://storage.googleapis.com".to_owned())),
        (Scheme::Oss, Some(region)) => {
            let region = region.strip_prefix("oss-").unwrap_or(region);
            Ok(Some(format!("https://oss-{region}.aliyuncs.com")))
        }
        (Scheme::Oss, None) => Err(OptionError::Meaning(
            "oss:// needs --region, as in cn-hangzhou, or --endpoint-url, as in oss-cn-hangzhou-internal.aliyuncs.com"
                .to_owned(),
        )),
    }
}

fn namespace(typed: &Typed) -> NamespaceConfig {
    NamespaceConfig {
        list_concurrency: typed.list_concurrency.value.max(1),
        show_shadowed: typed.show_shadowed.value.clone(),
        require_nonempty: typed.require_nonempty.value,
    }
}

fn read(typed: &Typed, host: &Host) -> ReadConfig {
    let affordable = ByteSize(host.machine.memory_bytes / POOL_SHARE);
    let pool = typed.memory_limit.value.unwrap_or_else(|| affordable.min(DEFAULT_POOL).max(LEAST_MEMORY));
    ReadConfig {
        pool_bytes: pool.0,
        direct: typed.direct_mode.value,
        max_gets_in_flight: typed.max_gets_in_flight.value.unwrap_or(GETS_IN_FLIGHT_PER_CPU * host.machine.cpus),
    }
}

fn fuse(typed: &Typed, host: &Host) -> FuseConfig {
    let read_ahead_kb = if typed.direct_mode.value { DIRECT_READ_AHEAD_KB } else { READ_AHEAD_KB };
    FuseConfig {
        attributes: attributes(typed, host),
        // More only wake each other up; one would be held up by a slow reply.
        reader_threads: host.machine.cpus.clamp(2, 4),
        read_ahead_kb: typed.read_ahead_kb.value.unwrap_or(read_ahead_kb),
        allow_other: typed.allow_other.value,
    }
}

fn attributes(typed: &Typed, host: &Host) -> AttributeConfig {
    let unmasked = 0o777 & !typed.umask.value;
    AttributeConfig {
        uid: typed.uid.value.unwrap_or(host.uid),
        gid: typed.gid.value.unwrap_or(host.gid),
        file_mode: typed.file_mode.value.unwrap_or(unmasked),
        dir_mode: typed.dir_mode.value.unwrap_or(unmasked),
    }
}

/// Verbs whose output is what they were asked for: only what must be known is logged, unless a level was chosen.
fn quiet_log_level(typed: &Typed) -> LogLevel {
    if typed.log_level.is_chosen() { typed.log_level.value } else { LogLevel::Warn }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::config::layers::Layers;
    use crate::config::options::find;
    use crate::config::row::Verb;
    use crate::config::source::Source;
    use crate::model::{KIB, MIB};

    fn host() -> Host {
        let machine = Machine { memory_bytes: 8 * GIB, cpus: 8 };
        let alibaba =
            AlibabaEnvironment { role_arn: Some("acs:ram::1:role/x".to_owned()), ..AlibabaEnvironment::default() };
        Host { machine, uid: 1000, gid: 100, directory: "/home/somebody".into(), alibaba }
    }

    fn typed(verb: Verb, flags: &[(&str, &str)]) -> Typed {
        let mut layers = Layers::new(verb);
        for (name, text) in flags {
            layers.add(find(name).unwrap(), (*text).to_owned(), Source::Flag);
        }
        layers.typed().unwrap()
    }

    fn try_mount(uri: &str, flags: &[(&str, &str)]) -> Result<MountSettings, OptionError> {
        mount(&typed(Verb::Mount, flags), &BucketUri::parse(OsStr::new(uri)).unwrap(), &host())
    }

    fn volume(uri: &str, flags: &[(&str, &str)]) -> VolumeConfig {
        try_mount(uri, flags).unwrap().volume
    }

    #[test]
    fn a_bare_mount_means_these_defaults() {
        let settings = try_mount("s3://bucket/train", &[]).unwrap();
        let volume = settings.volume;
        assert_eq!(volume.source_name, "s3://bucket/train/");
        assert_eq!(volume.prefix.as_bytes(), b"train/");
        assert_eq!(volume.store.s3.bucket, "bucket");
        assert_eq!((volume.store.s3.endpoint, volume.store.s3.region, volume.store.s3.dialect), (None, None, None));
        assert_eq!(volume.store.s3.addressing, Addressing::Auto);
        assert_eq!(volume.store.retry.deadline, Duration::from_secs(300));
        assert_eq!(volume.namespace.list_concurrency, 32);
        assert_eq!((volume.read.pool_bytes, volume.read.direct, volume.read.max_gets_in_flight), (GIB, false, 1024));
        let attributes = AttributeConfig { uid: 1000, gid: 100, file_mode: 0o755, dir_mode: 0o755 };
        assert_eq!(volume.fuse, FuseConfig { attributes, reader_threads: 4, read_ahead_kb: 1024, allow_other: false });
        assert_eq!((settings.foreground, settings.log_level, settings.log_file), (false, LogLevel::Info, None));
    }

    #[test]
    fn the_pool_takes_a_quarter_of_little_memory_but_enough_to_read_with() {
        for (memory_bytes, pool_bytes) in
            [(64 * GIB, GIB), (4 * GIB, GIB), (GIB, 256 * MIB), (32 * MIB, 16 * MIB), (KIB, 16 * MIB)]
        {
            let machine = Machine { memory_bytes, cpus: 1 };
            let read = read(&typed(Verb::Mount, &[]), &Host { machine, ..host() });
            assert_eq!(read.pool_bytes, pool_bytes);
        }
        assert_eq!(volume("s3://bucket", &[("memory-limit", "3G")]).read.pool_bytes, 3 * GIB);
    }

    #[test]
    fn direct_mode_lowers_the_kernel_s_read_ahead_unless_it_is_given() {
        let read_ahead_kb = |flags: &[_]| volume("s3://bucket", flags).fuse.read_ahead_kb;
        assert_eq!(read_ahead_kb(&[]), 1024);
        assert_eq!(read_ahead_kb(&[("direct-mode", "true")]), 128);
        assert_eq!(read_ahead_kb(&[("direct-mode", "true"), ("read-ahead-kb", "512")]), 512);
        assert!(volume("s3://bucket", &[("direct-mode", "true")]).read.direct);
    }

    #[test]
    fn modes_follow_the_umask_unless_they_are_given() {
        let modes = |flags: &[_]| {
            let attributes = volume("s3://bucket", flags).fuse.attributes;
            (attributes.file_mode, attributes.dir_mode)
        };
        assert_eq!(modes(&[]), (0o755, 0o755));
        assert_eq!(modes(&[("umask", "077")]), (0o700, 0o700));
        assert_eq!(modes(&[("umask", "077"), ("file-mode", "444")]), (0o444, 0o700));
        assert_eq!(modes(&[("dir-mode", "555")]), (0o755, 0o555));
        let owner = volume("s3://bucket", &[("uid", "0"), ("gid", "7")]).fuse.attributes;
        assert_eq!((owner.uid, owner.gid), (0, 7));
    }

    #[test]
    fn the_scheme_picks_dialect_and_endpoint_unless_they_are_given() {
        let s3 = |uri: &str, flags: &[_]| {
            let s3 = volume(uri, flags).store.s3;
            (s3.endpoint, s3.dialect)
        };
        let endpoint = |text: &str| Some(text.to_owned());
        assert_eq!(s3("gs://bucket", &[]), (endpoint("https://storage.googleapis.com"), Some(Dialect::Gcs)));
        for region in ["cn-hangzhou", "oss-cn-hangzhou"] {
            assert_eq!(
                s3("oss://bucket", &[("region", region)]),
                (endpoint("https://oss-cn-hangzhou.aliyuncs.com"), Some(Dialect::Oss))
            );
        }
        assert_eq!(
            s3("oss://bucket", &[("endpoint-url", "localhost:9000"), ("dialect", "minio")]),
            (endpoint("localhost:9000"), Some(Dialect::MinIo))
        );
    }

    #[test]
    fn oss_without_region_and_endpoint_is_refused() {
        assert_eq!(
            try_mount("oss://bucket", &[]).unwrap_err().to_string(),
            "oss:// needs --region, as in cn-hangzhou, or --endpoint-url, as in oss-cn-hangzhou-internal.aliyuncs.com"
        );
    }

    #[test]
    fn addressing_credentials_and_the_rest_of_the_store_are_passed_on() {
        let store = volume(
            "s3://bucket",
            &[("path-style", "true"), ("profile", "work"), ("requester-pays", "true"), ("ca-bundle", "ca.pem")],
        )
        .store;
        assert_eq!(store.s3.addressing, Addressing::Path);
        assert!(store.s3.requester_pays);
        assert_eq!(store.s3.ca_bundle.as_deref(), Some(Path::new("/home/somebody/ca.pem")));
        assert_eq!((store.credentials.anonymous, store.credentials.profile.as_deref()), (false, Some("work")));

        let store = volume("s3://bucket", &[("virtual-hosted", "true"), ("no-sign-request", "true")]).store;
        assert_eq!(store.s3.addressing, Addressing::VirtualHosted);
        assert!(store.credentials.anonymous);
        let store = volume("s3://bucket", &[("retry-deadline", "10s")]).store;
        assert_eq!(store.retry.deadline, Duration::from_secs(10));
    }

    #[test]
    fn credentials_are_sought_first_where_the_store_belongs() {
        let credentials = |uri: &str, flags: &[_]| volume(uri, flags).store.credentials;
        let oss = credentials("oss://bucket", &[("region", "cn-hangzhou")]);
        assert_eq!((oss.order, oss.region_hint.as_deref()), (ProviderOrder::AlibabaFirst, Some("cn-hangzhou")));
        assert_eq!(oss.alibaba.role_arn.as_deref(), Some("acs:ram::1:role/x"));
        for (flags, order) in [
            (&[("endpoint-url", "OSS-cn-hangzhou.aliyuncs.com")][..], ProviderOrder::AlibabaFirst),
            (&[("endpoint-url", "oss-cn-hangzhou.aliyuncs.com"), ("dialect", "aws")], ProviderOrder::AwsFirst),
            (&[("endpoint-url", "http://localhost"), ("dialect", "oss")], ProviderOrder::AlibabaFirst),
            (&[("endpoint-url", "https://aliyuncs.com.example")], ProviderOrder::AwsFirst),
            (&[], ProviderOrder::AwsFirst),
        ] {
            assert_eq!(credentials("s3://bucket", flags).order, order, "{flags:?}");
        }
    }

    #[test]
    fn listing_options_are_passed_on() {
        let namespace = volume(
            "s3://bucket",
            &[("list-concurrency", "4"), ("show-shadowed", ".object"), ("require-nonempty", "true")],
        )
        .namespace;
        assert_eq!(namespace.list_concurrency, 4);
        assert_eq!(namespace.show_shadowed.as_deref(), Some(".object"));
        assert!(namespace.require_nonempty);
    }

    #[test]
    fn a_relative_log_file_begins_where_the_command_was_typed() {
        let settings = try_mount("s3://bucket", &[("log-file", "log"), ("foreground", "true")]).unwrap();
        assert_eq!(settings.log_file.as_deref(), Some(Path::new("/home/somebody/log")));
        assert!(settings.foreground);
    }

    #[test]
    fn verbs_with_output_of_their_own_log_warnings_only_unless_told() {
        let uri = BucketUri::parse(OsStr::new("s3://bucket")).unwrap();
        let level = |flags: &[_]| browse(&typed(Verb::Ls, flags), &uri, &host()).unwrap().log_level;
        assert_eq!(level(&[]), LogLevel::Warn);
        assert_eq!(level(&[("log-level", "info")]), LogLevel::Info);
    }

    #[test]
    fn the_demo_takes_its_numbers_from_the_table() {
        let demo = demo(&typed(Verb::Demo, &[("images", "12")]), Some(Path::new("mnt")), &host());
        assert_eq!((demo.latency, demo.images), (Duration::from_millis(30), 12));
        assert_eq!(demo.mountpoint.as_deref(), Some(Path::new("/home/somebody/mnt")));
        assert_eq!(demo.namespace.list_concurrency, 32);
    }

    #[test]
    fn unmounting_is_orderly_unless_told() {
        let mode = |flags: &[_]| unmount(&typed(Verb::Unmount, flags));
        assert_eq!(mode(&[]), UnmountMode::Orderly);
        assert_eq!(mode(&[("lazy", "true")]), UnmountMode::Lazy);
        assert_eq!(mode(&[("force", "true")]), UnmountMode::Force);
    }
}
