//! Turns the failed first request of a mount into what was wrong and what to do.
//!
//! The error's kind says most of it. Where it leaves a question open, one further look is taken: at the bucket (does it exist,
//! in which region), at the names of the other buckets (was one misspelt), or at the way to the endpoint (name, port). A look
//! takes a few seconds at most, and when it fails the diagnosis is only less precise. Nothing is retried or cured here.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::error::SdkError;
use aws_smithy_http_client::tls;
use tokio::net::TcpStream;

use crate::model::ObjectKey;
use crate::store::{StoreError, StoreErrorKind};

/// Whoever reads a diagnosis has waited for the failed request already.
const LONGEST_LOOK: Duration = Duration::from_secs(3);
/// Where AWS is asked when no region is known; it answers for the buckets of all regions of its partition.
const ANY_REGION: &str = "us-east-1";
/// So many bucket names are shown, when none is close to the one asked for.
const MOST_NAMES: usize = 5;

/// What was to be mounted, and how it was asked for.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// The bucket.
    pub bucket: String,
    /// The prefix in it.
    pub prefix: ObjectKey,
    /// Address of the store, with or without scheme; `None` is AWS.
    pub endpoint: Option<String>,
    /// The region that requests were signed for, if one is known.
    pub region: Option<String>,
    /// Requests go to a host named after the bucket.
    pub is_virtual_hosted: bool,
    /// What requests were signed with; `None` when they were not.
    pub credentials: Option<Credentials>,
}

/// What was wrong and what to do about it, for the person who mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// What was wrong: a sentence without a full stop.
    pub problem: String,
    /// What to do: the same.
    pub advice: String,
}

impl Diagnosis {
    fn new(problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Diagnosis { problem: problem.into(), advice: advice.into() }
    }
}

/// What was wrong when the first request for `target` ended with `error`.
pub async fn explain(error: &StoreError, target: &Target) -> Diagnosis {
    explain_within(error, target, SystemTime::now(), LONGEST_LOOK).await
}

async fn explain_within(error: &StoreError, target: &Target, now: SystemTime, longest_look: Duration) -> Diagnosis {
    let case = Case { error, target, longest_look };
    match error.kind() {
        StoreErrorKind::NoSuchBucket | StoreErrorKind::NotFound => case.no_bucket().await,
        StoreErrorKind::AccessDenied => case.denied().await,
        StoreErrorKind::Credentials => case.credentials(),
        StoreErrorKind::ExpiredCredentials => Diagnosis::new(
            "the credentials have expired",
            "renew them (aws sso login, a new session token) and mount again, or use ones that renew themselves",
        ),
        StoreErrorKind::ClockSkew(server) => clock_skew(*server, now),
        StoreErrorKind::WrongRegion(region) => case.wrong_region(region.clone()).await,
        StoreErrorKind::Throttled(_) => Diagnosis::new(
            format!("{} asks to slow down, and did so until the time for retries was over", target.place()),
            "wait a while and mount again; others may be using up what it allows",
        ),
        StoreErrorKind::NoConnection | StoreErrorKind::Unavailable | StoreErrorKind::Interrupted => {
            case.unreachable().await
        }
        StoreErrorKind::BadResponse => case.no_store(),
        StoreErrorKind::InvalidRequest | StoreErrorKind::Changed | StoreErrorKind::Archived => Diagnosis::new(
            format!("{} refuses the request: {error}", target.place()),
            "check bucket, region and endpoint; some stores want --path-style, others --virtual-hosted",
        ),
    }
}

fn clock_skew(server_unix_seconds: Option<i64>, now: SystemTime) -> Diagnosis {
    let ours = now.duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_secs()).ok());
    let problem = match server_unix_seconds.zip(ours).map(|(server, ours)| ours.saturating_sub(server)) {
        Some(0) | None => "this machine's clock and the store's differ too much".to_owned(),
        Some(ahead) if ahead > 0 => format!("this machine's clock is {ahead} s ahead of the store's"),
        Some(behind) => format!("this machine's clock is {} s behind the store's", behind.unsigned_abs()),
    };
    Diagnosis::new(problem, "set it, and let it be kept right (timedatectl set-ntp true)")
}

impl Target {
    /// The store, in words.
    fn place(&self) -> String {
        match (&self.endpoint, &self.region) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Some(region)) => format!("AWS S3 in {region}"),
            (None, None) => "AWS S3".to_owned(),
        }
    }

    /// Address of the store with its scheme.
    fn url(&self) -> Option<reqwest::Url> {
        let region = self.region.as_deref().unwrap_or(ANY_REGION);
        let address = self.endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let address = if address.contains("://") { address } else { format!("https://{address}") };
        reqwest::Url::parse(&address).ok()
    }

    /// A client of the SDK that asks the same store as the same user, once.
    fn client(&self) -> Client {
        let region = self.region.clone().unwrap_or_else(|| ANY_REGION.to_owned());
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
            .build_https();
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region))
            .force_path_style(!self.is_virtual_hosted)
            .retry_config(RetryConfig::disabled())
            .http_client(http);
        if self.endpoint.is_some() {
            config.set_endpoint_url(self.url().map(Into::into));
        }
        let config = match &self.credentials {
            Some(credentials) => config.credentials_provider(credentials.clone()),
            None => config.allow_no_auth(),
        };
        Client::from_conf(config.build())
    }
}

/// What a look at the bucket has shown.
#[derive(Debug, Default)]
struct BucketHead {
    status: u16,
    region: Option<String>,
}

/// Where the way to the endpoint ends.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// The host's name is not known.
    NoName,
    /// The store's name is known, but that of the bucket's host is not.
    NoBucketName(String),
    Refused(SocketAddr),
    /// No answer at all.
    Silent(SocketAddr),
    Connects,
}

/// One failed request.
struct Case<'a> {
    error: &'a StoreError,
    target: &'a Target,
    longest_look: Duration,
}

impl Case<'_> {
    async fn no_bucket(&self) -> Diagnosis {
        let bucket = &self.target.bucket;
        let problem = format!("there is no bucket \"{bucket}\" at {}", self.target.place());
        let names = self.bucket_names().await;
        if let Some(name) = nearest(bucket, &names) {
            return Diagnosis::new(problem, format!("did you mean \"{name}\"?"));
        }
        let advice = match names.len() {
            0 if self.target.endpoint.is_none() => {
                "check the bucket's name; if it is not on AWS, say where with --endpoint-url".to_owned()
            }
            0 => "check the bucket's name and --endpoint-url".to_owned(),
            count => {
                let shown: Vec<&str> = names.iter().take(MOST_NAMES).map(String::as_str).collect();
                let more = if count > MOST_NAMES { " and others" } else { "" };
                format!("check its name and --endpoint-url; these credentials own {}{more}", shown.join(", "))
            }
        };
        Diagnosis::new(problem, advice)
    }

    async fn denied(&self) -> Diagnosis {
        let Target { bucket, prefix, .. } = self.target;
        let head = self.bucket_head().await;
        if head.status == 404 {
            return self.no_bucket().await;
        }
        if head.status == 301 || head.status == 400 && head.region.is_some() {
            return self.wrong_region(head.region).await;
        }
        let code = self.error.code().unwrap_or("AccessDenied");
        let problem = format!("listing s3://{bucket}/{prefix} is denied ({code})");
        let Some(credentials) = &self.target.credentials else {
            let advice = "the bucket is not public: give credentials, and leave out --no-sign-request";
            return Diagnosis::new(problem, advice);
        };
        let key = credentials.access_key_id();
        let what =
            format!("s3:ListBucket on arn:aws:s3:::{bucket} and s3:GetObject on arn:aws:s3:::{bucket}/{prefix}*");
        let advice = if head.status == 200 {
            format!(
                "access key {key} may see the bucket but not list this prefix: allow it {what}, or mount a prefix it may list"
            )
        } else {
            format!(
                "allow access key {key} {what}; a bucket of somebody else's is denied like this, too, so check its name"
            )
        };
        Diagnosis::new(problem, advice)
    }

    fn credentials(&self) -> Diagnosis {
        let place = self.target.place();
        let Some(credentials) = &self.target.credentials else {
            let advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile with --profile, or use \
                          --no-sign-request for a public bucket";
            return Diagnosis::new(format!("no credentials that {place} accepts: {}", self.error), advice);
        };
        let key = credentials.access_key_id();
        match self.error.code() {
            Some("SignatureDoesNotMatch") => Diagnosis::new(
                format!("the secret access key does not belong to access key {key}"),
                "copy both again, whole and from one place; a proxy that changes requests has the same effect",
            ),
            Some("InvalidAccessKeyId" | "InvalidAccessKey") => Diagnosis::new(
                format!("{place} does not know access key {key}"),
                "check that the credentials are for this store (--profile, --endpoint-url) and were not deleted",
            ),
            Some("InvalidToken" | "InvalidSecurityToken") => Diagnosis::new(
                format!("{place} does not accept the session token of access key {key}"),
                "set AWS_SESSION_TOKEN together with the keys it was issued with, or unset it for permanent keys",
            ),
            _ => Diagnosis::new(
                format!("{place} does not accept the credentials (access key {key}): {}", self.error),
                "check that they are for this store: --profile, --endpoint-url",
            ),
        }
    }

    async fn wrong_region(&self, region: Option<String>) -> Diagnosis {
        let Target { bucket, region: ours, endpoint, .. } = self.target;
        let region = match region {
            Some(region) => Some(region),
            None => self.bucket_head().await.region,
        };
        let asked = ours.as_deref().map_or_else(String::new, |ours| format!(", not in {ours}"));
        match region.filter(|region| Some(region) != ours.as_ref() || endpoint.is_some()) {
            Some(region) if endpoint.is_none() => {
                Diagnosis::new(format!("bucket \"{bucket}\" is in {region}{asked}"), format!("use --region {region}"))
            }
            Some(region) => Diagnosis::new(
                format!("bucket \"{bucket}\" is in {region}{asked}"),
                format!(
                    "use --region {region}, and the --endpoint-url of that region if {} is not",
                    self.target.place()
                ),
            ),
            None => Diagnosis::new(
                format!("bucket \"{bucket}\" is not at {}: {}", self.target.place(), self.error),
                "give the bucket's own --region, and --endpoint-url if it is not on AWS",
            ),
        }
    }

    async fn unreachable(&self) -> Diagnosis {
        let place = self.target.place();
        let Some(url) = self.target.url() else {
            return Diagnosis::new(format!("\"{place}\" is no address"), "write --endpoint-url as https://HOST[:PORT]");
        };
        let host = url.host_str().unwrap_or_default().to_owned();
        match self.way(&url).await {
            Some(Way::NoName) => Diagnosis::new(
                format!("the name \"{host}\" cannot be resolved"),
                "check --endpoint-url and --region for typing errors, and this machine's DNS (resolvectl query)",
            ),
            Some(Way::NoBucketName(name)) => Diagnosis::new(
                format!("\"{host}\" is known, but \"{name}\" cannot be resolved"),
                "use --path-style: this store's buckets have no host names of their own here",
            ),
            Some(Way::Refused(address)) => Diagnosis::new(
                format!("{address} refuses connections: nothing listens there"),
                "start the store, or correct host and port of --endpoint-url",
            ),
            Some(Way::Silent(address)) => Diagnosis::new(
                format!("{address} does not answer"),
                "check --endpoint-url, and routes, firewalls and security groups between here and there; a VPC needs an S3 \
                 endpoint or a NAT gateway",
            ),
            Some(Way::Connects) if url.scheme() == "https" => Diagnosis::new(
                format!("{place} accepts connections but gives no answer: {}", self.error),
                "if it does not speak TLS write http:// in --endpoint-url; if its certificate is private give its root with \
                 --ca-bundle; else look at the store's own log",
            ),
            Some(Way::Connects) => Diagnosis::new(
                format!("{place} accepts connections but gives no answer: {}", self.error),
                "if it speaks TLS write https:// in --endpoint-url; else look at the store's own log",
            ),
            None => Diagnosis::new(
                format!("{place} cannot be reached: {}", self.error),
                "check --endpoint-url and the network",
            ),
        }
    }

    fn no_store(&self) -> Diagnosis {
        Diagnosis::new(
            format!("{} answers, but not as an S3 store: {}", self.target.place(), self.error),
            "check host and port of --endpoint-url: a web console often has a port next to that of the S3 service",
        )
    }

    async fn bucket_head(&self) -> BucketHead {
        let asked = self.target.client().head_bucket().bucket(&self.target.bucket).send();
        let head = match tokio::time::timeout(self.longest_look, asked).await {
            Ok(Ok(head)) => BucketHead { status: 200, region: head.bucket_region().map(str::to_owned) },
            Ok(Err(SdkError::ServiceError(refused))) => {
                let response = refused.raw();
                let region = response.headers().get("x-amz-bucket-region");
                BucketHead { status: response.status().as_u16(), region: region.map(str::to_owned) }
            }
            Ok(Err(_)) | Err(_) => BucketHead::default(),
        };
        tracing::debug!(?head, "looked at the bucket to explain a failure");
        head
    }

    /// The buckets of these credentials; none when they may not be listed.
    async fn bucket_names(&self) -> Vec<String> {
        if self.target.credentials.is_none() {
            return Vec::new();
        }
        // The list of buckets is asked for at the store's own host.
        let client = Target { is_virtual_hosted: false, ..self.target.clone() }.client();
        match tokio::time::timeout(self.longest_look, client.list_buckets().send()).await {
            Ok(Ok(list)) => list.buckets().iter().filter_map(|bucket| bucket.name().map(str::to_owned)).collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    /// How far a connection to the endpoint gets; `None` when that cannot be said.
    async fn way(&self, url: &reqwest::Url) -> Option<Way> {
        let (host, port) = (url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?);
        let resolve = |host: String| {
            tokio::time::timeout(self.longest_look, async move {
                tokio::net::lookup_host((host, port)).await.map(Iterator::collect::<Vec<_>>).unwrap_or_default()
            })
        };
        let Ok(addresses) = resolve(host.clone()).await else { return Some(Way::NoName) };
        let Some(&address) = addresses.first() else { return Some(Way::NoName) };
        if self.target.is_virtual_hosted && host.parse::<std::net::IpAddr>().is_err() {
            let name = format!("{}.{host}", self.target.bucket);
            if resolve(name.clone()).await.is_ok_and(|addresses| addresses.is_empty()) {
                return Some(Way::NoBucketName(name));
            }
        }
        let connected = TcpStream::connect(&addresses[..]);
        match tokio::time::timeout(self.longest_look, connected).await {
            Ok(Ok(_)) => Some(Way::Connects),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => Some(Way::Refused(address)),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::TimedOut => Some(Way::Silent(address)),
            Ok(Err(_)) => None,
            Err(_) => Some(Way::Silent(address)),
        }
    }
}

/// The name that `asked` was probably meant to be.
fn nearest<'a>(asked: &str, names: &'a [String]) -> Option<&'a str> {
    let limit = (asked.chars().count() / 4).clamp(1, 4);
    let near = names.iter().map(|name| (strsim::osa_distance(asked, name), name));
    near.filter(|&(distance, _)| distance <= limit).min().map(|(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// A server that answers each request by its first line, and notes it.
    struct Scripted {
        endpoint: String,
        requests: Arc<Mutex<Vec<String>>>,
        task: JoinHandle<()>,
    }

    impl Drop for Scripted {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    /// `answer` gives status line with headers, and body; `None` says nothing for ever.
    async fn serve(answer: fn(&str) -> Option<(&'static str, &'static str)>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            let mut unanswered = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        break;
                    }
                }
                if head.is_empty() {
                    continue;
                }
                let line = String::from_utf8(head).unwrap().lines().next().unwrap().to_owned();
                noted.lock().unwrap().push(line.clone());
                match answer(&line) {
                    Some((head, body)) => {
                        let length = body.len();
                        let text =
                            format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                        stream.write_all(text.as_bytes()).await.unwrap();
                    }
                    None => unanswered.push(stream),
                }
            }
        });
        Scripted { endpoint, requests, task }
    }

    fn target(endpoint: &str) -> Target {
        Target {
            bucket: "imagenet".to_owned(),
            prefix: "train/".into(),
            endpoint: Some(endpoint.to_owned()),
            credentials: Some(Credentials::new("AKIAEXAMPLE", "secret", None, None, "test")),
            ..Target::default()
        }
    }

    fn failed(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "list", &"train/".into(), "it failed")
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    async fn diagnose(error: &StoreError, target: &Target) -> Diagnosis {
        explain_within(error, target, NOW, Duration::from_secs(20)).await
    }

    const BUCKETS: &str = "<?xml version=\"1.0\"?><ListAllMyBucketsResult><Buckets>\
        <Bucket><Name>logs</Name></Bucket><Bucket><Name>image-net</Name></Bucket></Buckets></ListAllMyBucketsResult>";

    #[tokio::test]
    async fn a_misspelt_bucket_is_told_the_nearest_name() {
        let server =
            serve(|line| line.starts_with("GET /?").then_some(("200 OK", BUCKETS)).or(Some(("404 Not Found", ""))))
                .await;
        let found = diagnose(&failed(StoreErrorKind::NoSuchBucket), &target(&server.endpoint)).await;
        assert_eq!(found.problem, format!("there is no bucket \"imagenet\" at {}", server.endpoint));
        assert_eq!(found.advice, "did you mean \"image-net\"?");

        let other = Target { bucket: "training-data".to_owned(), ..target(&server.endpoint) };
        let found = diagnose(&failed(StoreErrorKind::NoSuchBucket), &other).await;
        assert!(found.advice.ends_with("these credentials own logs, image-net"), "{}", found.advice);
    }

    #[tokio::test]
    async fn a_failed_look_leaves_the_plain_advice() {
        let server = serve(|_| Some(("403 Forbidden", ""))).await;
        let found = diagnose(&failed(StoreErrorKind::NoSuchBucket), &target(&server.endpoint)).await;
        assert_eq!(found.advice, "check the bucket's name and --endpoint-url");
        assert_eq!(server.requests.lock().unwrap().len(), 1, "one look, not tried again");

        let silent = serve(|_| None).await;
        let (denied, target) = (failed(StoreErrorKind::AccessDenied), target(&silent.endpoint));
        let look = explain_within(&denied, &target, NOW, Duration::from_millis(50));
        let found = tokio::time::timeout(Duration::from_secs(20), look).await.expect("the look has no end");
        assert!(found.problem.contains("is denied"), "{}", found.problem);
    }

    #[tokio::test]
    async fn a_denied_listing_names_action_resource_and_key() {
        let server = serve(|line| line.starts_with("HEAD /imagenet").then_some(("403 Forbidden", ""))).await;
        let denied = failed(StoreErrorKind::AccessDenied).with_code("AccessDenied");
        let found = diagnose(&denied, &target(&server.endpoint)).await;
        assert_eq!(found.problem, "listing s3://imagenet/train/ is denied (AccessDenied)");
        for part in
            ["AKIAEXAMPLE", "s3:ListBucket on arn:aws:s3:::imagenet ", "s3:GetObject on arn:aws:s3:::imagenet/train/*"]
        {
            assert!(found.advice.contains(part), "{}", found.advice);
        }
        assert!(!found.advice.contains("secret"));

        let unsigned = Target { credentials: None, ..target(&server.endpoint) };
        let found = diagnose(&denied, &unsigned).await;
        assert!(found.advice.contains("--no-sign-request"), "{}", found.advice);
    }

    #[tokio::test]
    async fn a_bucket_that_may_be_seen_but_not_listed_is_told_apart() {
        let server = serve(|_| Some(("200 OK", ""))).await;
        let found = diagnose(&failed(StoreErrorKind::AccessDenied), &target(&server.endpoint)).await;
        assert!(found.advice.contains("may see the bucket but not list this prefix"), "{}", found.advice);
    }

    #[tokio::test]
    async fn a_denied_bucket_that_is_not_there_is_a_wrong_name() {
        let server = serve(|line| match line.starts_with("HEAD") {
            true => Some(("404 Not Found", "")),
            false => Some(("200 OK", BUCKETS)),
        })
        .await;
        let found = diagnose(&failed(StoreErrorKind::AccessDenied), &target(&server.endpoint)).await;
        assert_eq!(found.advice, "did you mean \"image-net\"?");
    }

    #[tokio::test]
    async fn the_right_region_is_found_out() {
        let server = serve(|_| Some(("301 Moved Permanently\r\nx-amz-bucket-region: eu-west-3", ""))).await;
        let here = Target { region: Some("us-east-1".to_owned()), ..target(&server.endpoint) };
        let found = diagnose(&failed(StoreErrorKind::WrongRegion(None)), &here).await;
        assert_eq!(found.problem, "bucket \"imagenet\" is in eu-west-3, not in us-east-1");
        assert!(found.advice.starts_with("use --region eu-west-3"), "{}", found.advice);

        let told = Target { endpoint: None, ..here };
        let found = diagnose(&failed(StoreErrorKind::WrongRegion(Some("eu-west-3".to_owned()))), &told).await;
        assert_eq!(found.advice, "use --region eu-west-3");
    }

    #[tokio::test]
    async fn the_way_to_the_endpoint_is_followed_to_where_it_ends() {
        let failure = failed(StoreErrorKind::Unavailable);
        let found = diagnose(&failure, &target("http://no-such-host.invalid:9000")).await;
        assert_eq!(found.problem, "the name \"no-such-host.invalid\" cannot be resolved");

        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = closed.local_addr().unwrap();
        drop(closed);
        let found = diagnose(&failure, &target(&address.to_string())).await;
        assert_eq!(found.problem, format!("{address} refuses connections: nothing listens there"));

        let server = serve(|_| None).await;
        let found = diagnose(&failure, &target(&server.endpoint)).await;
        assert!(
            found.problem.contains("accepts connections but gives no answer: list \"train/\": it failed"),
            "{}",
            found.problem
        );
        assert!(found.advice.contains("https://"), "{}", found.advice);
        let found = diagnose(&failure, &target(&server.endpoint.replace("http:", "https:"))).await;
        assert!(found.advice.contains("http://") && found.advice.contains("--ca-bundle"), "{}", found.advice);

        let found = diagnose(&failure, &target("http://[")).await;
        assert!(found.problem.contains("is no address"), "{}", found.problem);
    }

    #[tokio::test]
    async fn credentials_and_clock_are_explained_without_a_look() {
        let nowhere = target("http://127.0.0.1:1");
        let code = |code| failed(StoreErrorKind::Credentials).with_code(code);
        for (error, problem) in [
            (code("SignatureDoesNotMatch"), "the secret access key does not belong to access key AKIAEXAMPLE"),
            (code("InvalidAccessKeyId"), "http://127.0.0.1:1 does not know access key AKIAEXAMPLE"),
            (failed(StoreErrorKind::ClockSkew(Some(-90))), "this machine's clock is 90 s ahead of the store's"),
            (failed(StoreErrorKind::ClockSkew(Some(90))), "this machine's clock is 90 s behind the store's"),
            (failed(StoreErrorKind::ExpiredCredentials), "the credentials have expired"),
        ] {
            assert_eq!(diagnose(&error, &nowhere).await.problem, problem);
        }
        let without = Target { credentials: None, ..nowhere };
        let found = diagnose(&failed(StoreErrorKind::Credentials), &without).await;
        assert!(found.advice.contains("AWS_ACCESS_KEY_ID"), "{}", found.advice);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let names = ["data", "imagenet-1k", "mnist"].map(str::to_owned);
        assert_eq!(nearest("imagnet-1k", &names), Some("imagenet-1k"));
        assert_eq!(nearest("dtaa", &names), Some("data"));
        assert_eq!(nearest("coco", &names), None);
    }
}
