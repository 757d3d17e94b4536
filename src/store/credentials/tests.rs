//! Providers against files, variables and scripted services on loopback.
//!
//! The SDK reads the environment of its process, and a test must not change its own: such a test runs itself again in a child
//! that has the environment it needs and plays one of the `Part`s.

use std::path::Path;
use std::process::Output;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use rand::SeedableRng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::store::clock::{ManualClock, SystemClock};

/// A service that answers every request as its script says.
struct Service {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

/// Status, further header lines, body.
type Answer = (u16, &'static str, String);

impl Service {
    async fn start(script: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                let (status, headers, body) = script(&request);
                log.lock().unwrap().push(request);
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Service { url, requests, task }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the request ended early: {text}");
    }
}

fn http() -> reqwest::Client {
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn alibaba_only(alibaba: AlibabaEnvironment) -> StoreCredentials {
    let config = CredentialsConfig { alibaba, order: ProviderOrder::AlibabaFirst, ..CredentialsConfig::default() };
    StoreCredentials::new(&config, Arc::new(SystemClock), SmallRng::seed_from_u64(1), &http())
}

fn some(text: impl Into<String>) -> Option<String> {
    Some(text.into())
}

const IN_2100: &str = "2100-01-01T00:00:00Z";

mod alibaba_cloud {
    use super::*;

    #[test]
    fn variables_are_taken_and_empty_ones_are_not_set() {
        let found = AlibabaEnvironment::from_lookup(&|name| match name {
            "ALIBABA_CLOUD_SECURITY_TOKEN" => some(""),
            name => name.strip_prefix("ALIBABA_CLOUD_").map(str::to_lowercase),
        });
        let expected = AlibabaEnvironment {
            access_key_id: some("access_key_id"),
            access_key_secret: some("access_key_secret"),
            security_token: None,
            role_arn: some("role_arn"),
            oidc_provider_arn: some("oidc_provider_arn"),
            oidc_token_file: some("oidc_token_file"),
            role_session_name: some("role_session_name"),
            sts_endpoint: some("sts_endpoint"),
            credentials_uri: some("credentials_uri"),
            ecs_metadata: some("ecs_metadata"),
        };
        assert!(found == expected, "{found:?}");
        assert!(!format!("{found:?}").contains("access_key_secret\""), "{found:?}");
    }

    #[tokio::test]
    async fn keys_in_variables_come_first() {
        let store = alibaba_only(AlibabaEnvironment {
            access_key_id: some("LTAI"),
            access_key_secret: some("secret"),
            security_token: some("token"),
            ecs_metadata: some("role"),
            ..AlibabaEnvironment::default()
        });
        assert_eq!(store.describe(), "none found yet");
        let found = store.current().await.unwrap().unwrap();
        assert_eq!((found.access_key_id.as_str(), found.session_token.as_deref()), ("LTAI", Some("token")));
        assert_eq!(store.describe(), "Alibaba Cloud environment");
    }

    #[tokio::test]
    async fn half_a_key_is_an_error_that_names_the_other_half() {
        let store = alibaba_only(AlibabaEnvironment { access_key_id: some("LTAI"), ..AlibabaEnvironment::default() });
        let error = store.current().await.unwrap_err().to_string();
        assert!(error.contains("ALIBABA_CLOUD_ACCESS_KEY_SECRET is not set"), "{error}");
    }

    fn pod_role(url: &str, token_file: &Path) -> AlibabaEnvironment {
        AlibabaEnvironment {
            role_arn: some("acs:ram::1:role/reader"),
            oidc_provider_arn: some("acs:ram::1:oidc-provider/ack"),
            oidc_token_file: some(token_file.to_str().unwrap()),
            sts_endpoint: some(url),
            ..AlibabaEnvironment::default()
        }
    }

    #[tokio::test]
    async fn a_pod_takes_its_role_with_the_token_that_is_in_the_file_now() {
        let service = Service::start(|request| {
            let key = if request.contains("OIDCToken=second%2Fjwt") { "STS.two" } else { "STS.one" };
            let body = format!(
                r#"{{"RequestId":"r","AssumedRoleUser":{{"Arn":"a"}},"Credentials":{{"AccessKeyId":"{key}",
                "AccessKeySecret":"s","SecurityToken":"t","Expiration":"{IN_2100}"}}}}"#
            );
            (200, "", body)
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "first.jwt\n").unwrap();
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
        let config = CredentialsConfig { alibaba: pod_role(&service.url, &file), ..CredentialsConfig::default() };
        let config = CredentialsConfig { order: ProviderOrder::AlibabaFirst, ..config };
        let store = StoreCredentials::new(&config, clock.clone(), SmallRng::seed_from_u64(1), &http());
        let found = store.current().await.unwrap().unwrap();
        assert_eq!((found.access_key_id.as_str(), found.session_token.as_deref()), ("STS.one", Some("t")));
        assert_eq!(store.describe(), "Alibaba Cloud pod role (RRSA)");
        std::fs::write(&file, "second/jwt\n").unwrap();
        clock.advance(Duration::from_secs(10));
        store.refresh().await;
        assert_eq!(store.current().await.unwrap().unwrap().access_key_id, "STS.two");

        let request = &service.requests()[0];
        let first_line = "POST /?Action=AssumeRoleWithOIDC&Format=JSON&Version=2015%2D04%2D01\
                          &Timestamp=2023%2D11%2D14T22%3A13%3A20Z HTTP/1.1\r\n";
        assert!(request.starts_with(first_line), "{request}");
        let body = "\r\n\r\nRoleArn=acs%3Aram%3A%3A1%3Arole%2Freader&OIDCProviderArn=acs%3Aram%3A%3A1%3Aoidc%2Dprovider%2Fack\
                    &OIDCToken=first%2Ejwt&RoleSessionName=streamvol&DurationSeconds=3600";
        assert!(request.ends_with(body), "{request}");
        assert!(!request.to_lowercase().contains("authorization"), "{request}");
    }

    #[tokio::test]
    async fn an_answer_in_xml_is_read_too() {
        let service = Service::start(|_| {
            let body = format!(
                "<?xml version='1.0'?><AssumeRoleWithOIDCResponse><Credentials><AccessKeyId>STS.x</AccessKeyId>\
                 <AccessKeySecret>s</AccessKeySecret><SecurityToken>t</SecurityToken><Expiration>{IN_2100}</Expiration>\
                 </Credentials></AssumeRoleWithOIDCResponse>"
            );
            (200, "", body)
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "jwt").unwrap();
        let found = alibaba_only(pod_role(&service.url, &file)).current().await.unwrap().unwrap();
        assert_eq!((found.access_key_id.as_str(), found.session_token.as_deref()), ("STS.x", Some("t")));
    }

    #[tokio::test]
    async fn what_sts_refuses_is_said_in_its_words() {
        let refusal = r#"{"Code":"AuthenticationFail.OIDCToken.Expired","Message":"This JWT has expired"}"#;
        let service = Service::start(move |_| (400, "", refusal.to_owned())).await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "jwt").unwrap();
        let error = alibaba_only(pod_role(&service.url, &file)).current().await.unwrap_err().to_string();
        assert!(error.contains("400: AuthenticationFail.OIDCToken.Expired This JWT has expired"), "{error}");
        let missing = directory.path().join("missing");
        let error = alibaba_only(pod_role(&service.url, &missing)).current().await.unwrap_err().to_string();
        assert!(error.contains("cannot read the token file") && error.contains("missing"), "{error}");
    }

    #[tokio::test]
    async fn a_credentials_service_is_asked_and_its_address_not_told() {
        let service = Service::start(|request| {
            assert!(request.starts_with("GET /path?secret=hunter2 HTTP/1.1"), "{request}");
            let body = format!(
                r#"{{"Code":"Success","AccessKeyId":"uri","AccessKeySecret":"s","SecurityToken":"t","Expiration":"{IN_2100}"}}"#
            );
            (200, "", body)
        })
        .await;
        let environment = |url: &str| AlibabaEnvironment {
            credentials_uri: some(format!("{url}/path?secret=hunter2")),
            ..AlibabaEnvironment::default()
        };
        let found = alibaba_only(environment(&service.url)).current().await.unwrap().unwrap();
        assert_eq!(found.access_key_id, "uri");
        let url = service.url.clone();
        drop(service);
        let error = alibaba_only(environment(&url)).current().await.unwrap_err().to_string();
        assert!(error.contains("does not answer") && !error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn answers_that_make_no_sense_are_errors() {
        for (body, expected) in [
            (r#"{"Code":"Failed"}"#, "answers Failed"),
            ("<html>hello</html>", "has no AccessKeyId"),
            (r#"{"AccessKeyId":"a"}"#, "has no AccessKeySecret"),
            (r#"{"AccessKeyId":"a","AccessKeySecret":"b","Expiration":"soon"}"#, "Expiration that is no date"),
        ] {
            let service = Service::start(move |_| (200, "", body.to_owned())).await;
            let uri = some(&service.url);
            let store = alibaba_only(AlibabaEnvironment { credentials_uri: uri, ..AlibabaEnvironment::default() });
            let error = store.current().await.unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        }
    }

    #[tokio::test]
    async fn an_instance_gives_its_roles_keys_with_and_without_a_token() {
        for has_tokens in [true, false] {
            let service = Service::start(move |request| {
                if request.starts_with("PUT /latest/api/token ") {
                    assert!(request.contains("x-aliyun-ecs-metadata-token-ttl-seconds: 21600"), "{request}");
                    return if has_tokens { (200, "", "tok".to_owned()) } else { (404, "", String::new()) };
                }
                let path = "GET /latest/meta-data/ram/security-credentials/my%2Drole ";
                assert!(request.starts_with(path), "{request}");
                assert_eq!(request.contains("x-aliyun-ecs-metadata-token: tok"), has_tokens);
                let body = format!(
                    r#"{{"Code":"Success","AccessKeyId":"ecs","AccessKeySecret":"s","Expiration":"{IN_2100}"}}"#
                );
                (200, "", body)
            })
            .await;
            let provider = alibaba::instance_role_at(&service.url, "my-role", &http());
            let fetched = provider.fetch().await;
            assert!(fetched.is_ok_and(|found| found.access_key_id == "ecs" && found.expires.is_some()));
        }
    }
}

/// What a child does in the environment that its parent made for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    DefaultChain,
    ProfileTeam,
    Regions,
    TimeToFail,
    Rotation,
}

/// Tells a child its part, and whose child it is: `PART PARENT`.
const PART: &str = "STREAMVOL_TEST_PART";

/// A test that runs itself again with another environment.
struct Stage {
    test: &'static str,
}

impl Stage {
    /// In the parent, the stage; in the child, which has then played its part, `None`. `_test` is the test that asks.
    async fn enter<T>(_test: T) -> Option<Stage> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the parent sets the variable for its child, and nobody else does"
        )]
        let told = std::env::var(PART);
        if let Ok(told) = told {
            let (part, parent) = told.split_once(' ').unwrap();
            assert_eq!(parent, std::os::unix::process::parent_id().to_string(), "{PART} is for children of a test");
            println!("FOUND {}", Part::named(part).play().await);
            return None;
        }
        // Test names go without the name of the crate.
        let (_crate, test) = std::any::type_name::<T>().split_once("::").unwrap();
        Some(Stage { test })
    }

    /// What a child finds that has only these variables, in `directory`, which is its home, too.
    async fn play(&self, part: Part, directory: &Path, variables: &[(&str, &str)]) -> String {
        let output: Output = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", self.test])
            .env_clear()
            .env(PART, format!("{part:?} {}", std::process::id()))
            .env("HOME", directory)
            .envs(variables.iter().copied())
            .current_dir(directory)
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let found = text.lines().find_map(|line| line.split_once("FOUND ").map(|(_, found)| found.to_owned()));
        found.unwrap_or_else(|| panic!("the child printed no result: {text}"))
    }
}

impl Part {
    fn named(name: &str) -> Part {
        let all = [Part::DefaultChain, Part::ProfileTeam, Part::Regions, Part::TimeToFail, Part::Rotation];
        all.into_iter().find(|part| format!("{part:?}") == name).unwrap()
    }

    async fn play(self) -> String {
        let profile_team = CredentialsConfig { profile: some("team"), ..CredentialsConfig::default() };
        match self {
            Part::DefaultChain => found(&CredentialsConfig::default()).await,
            Part::ProfileTeam => found(&profile_team).await,
            Part::Regions => format!("{:?} {:?}", region(None).await, region(Some("team")).await),
            Part::TimeToFail => time_to_fail().await,
            Part::Rotation => rotation().await,
        }
    }
}

fn sdk_store(config: &CredentialsConfig, clock: Arc<dyn Clock>) -> StoreCredentials {
    StoreCredentials::new(config, clock, SmallRng::seed_from_u64(1), &http())
}

async fn found(config: &CredentialsConfig) -> String {
    let store = sdk_store(config, Arc::new(SystemClock));
    match store.current().await {
        Ok(Some(found)) => {
            let (key, token, provider) = (&found.access_key_id, &found.session_token, store.describe());
            format!("{key} {token:?} by {provider}")
        }
        Ok(None) => "nobody".to_owned(),
        Err(error) => error.to_string(),
    }
}

async fn time_to_fail() -> String {
    let store = sdk_store(&CredentialsConfig::default(), Arc::new(SystemClock));
    let start = std::time::Instant::now();
    store.current().await.unwrap_err();
    start.elapsed().as_millis().to_string()
}

/// The key in a file before and after it was rotated.
async fn rotation() -> String {
    let write = |key: &str| {
        let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=s\n");
        std::fs::write("credentials", text).unwrap();
    };
    write("one");
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
    let store = sdk_store(&CredentialsConfig::default(), clock.clone());
    let first = store.current().await.unwrap().unwrap();
    write("two");
    clock.advance(Duration::from_secs(10));
    store.refresh().await;
    let second = store.current().await.unwrap().unwrap();
    format!("{} {}", first.access_key_id, second.access_key_id)
}

/// The metadata service is off, so that nothing leaves this machine.
const NO_METADATA: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

mod aws_sdk {
    use super::*;

    #[tokio::test]
    async fn the_environment_comes_before_the_default_profile() {
        let Some(stage) = Stage::enter(the_environment_comes_before_the_default_profile).await else { return };
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("credentials");
        std::fs::write(&file, "[default]\naws_access_key_id=FILE\naws_secret_access_key=s\n").unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap());
        let keys = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "t")];
        let variables = [&keys[..], &[file, NO_METADATA]].concat();
        assert_eq!(stage.play(Part::DefaultChain, home.path(), &variables).await, "ENV Some(\"t\") by environment");
        let found = stage.play(Part::DefaultChain, home.path(), &[file, NO_METADATA]).await;
        assert_eq!(found, "FILE None by profile");
    }

    #[tokio::test]
    async fn a_named_profile_is_taken_whatever_the_environment_has() {
        let Some(stage) = Stage::enter(a_named_profile_is_taken_whatever_the_environment_has).await else { return };
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let config = "[profile team]\ncredential_process = /bin/cat process.json\nregion = eu-central-1\n";
        std::fs::write(home.path().join(".aws/config"), config).unwrap();
        let process = r#"{"Version":1,"AccessKeyId":"PROCESS","SecretAccessKey":"s","SessionToken":"t"}"#;
        std::fs::write(home.path().join("process.json"), process).unwrap();
        let keys = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s"), ("PATH", "/usr/bin:/bin")];
        let found = stage.play(Part::ProfileTeam, home.path(), &keys).await;
        assert_eq!(found, "PROCESS Some(\"t\") by profile");
        assert_eq!(stage.play(Part::Regions, home.path(), &[]).await, "None Some(\"eu-central-1\")");
        let variables = [("AWS_REGION", "us-west-2")];
        assert_eq!(stage.play(Part::Regions, home.path(), &variables).await, "Some(\"us-west-2\") Some(\"us-west-2\")");
    }

    #[tokio::test]
    async fn without_any_credentials_the_error_says_what_was_tried_and_what_to_do() {
        let Some(stage) = Stage::enter(without_any_credentials_the_error_says_what_was_tried_and_what_to_do).await
        else {
            return;
        };
        let home = tempfile::tempdir().unwrap();
        let found = stage.play(Part::DefaultChain, home.path(), &[NO_METADATA]).await;
        assert_eq!(
            found,
            "no credentials: tried environment, profile, web identity, container, instance metadata, Alibaba Cloud \
             environment; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, use --profile, or --no-sign-request for a \
             public bucket"
        );
        let found = stage.play(Part::ProfileTeam, home.path(), &[NO_METADATA]).await;
        assert!(
            found.starts_with("no credentials: profile: \"team\" has no credentials that can be used ("),
            "{found}"
        );
        assert!(found.contains("name a profile that has credentials"), "{found}");
    }

    #[tokio::test]
    async fn keys_that_are_rotated_in_the_file_are_read_again() {
        let Some(stage) = Stage::enter(keys_that_are_rotated_in_the_file_are_read_again).await else { return };
        let home = tempfile::tempdir().unwrap();
        let variables = [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), NO_METADATA];
        assert_eq!(stage.play(Part::Rotation, home.path(), &variables).await, "one two");
    }

    #[tokio::test]
    async fn a_metadata_service_that_never_answers_costs_two_seconds() {
        let Some(stage) = Stage::enter(a_metadata_service_that_never_answers_costs_two_seconds).await else { return };
        let home = tempfile::tempdir().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let found = stage.play(Part::TimeToFail, home.path(), &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)]).await;
        let milliseconds: u64 = found.parse().unwrap();
        // More than 2 s by what a loaded machine needs to notice.
        assert!((500..3500).contains(&milliseconds), "{milliseconds} ms");
    }

    #[tokio::test]
    async fn an_instance_gives_its_roles_keys() {
        let Some(stage) = Stage::enter(an_instance_gives_its_roles_keys).await else { return };
        let service = Service::start(|request| {
            if request.starts_with("PUT /latest/api/token ") {
                return (200, "x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n", "tok".to_owned());
            }
            if request.starts_with("GET /latest/meta-data/iam/security-credentials/ ") {
                return (200, "", "role".to_owned());
            }
            let body = format!(
                r#"{{"Code":"Success","LastUpdated":"{IN_2100}","Type":"AWS-HMAC","AccessKeyId":"IMDS",
                "SecretAccessKey":"s","Token":"t","Expiration":"{IN_2100}"}}"#
            );
            (200, "", body)
        })
        .await;
        let home = tempfile::tempdir().unwrap();
        let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url.as_str())];
        let found = stage.play(Part::DefaultChain, home.path(), &variables).await;
        assert_eq!(found, "IMDS Some(\"t\") by instance metadata");
    }

    #[tokio::test]
    async fn a_container_gives_its_keys() {
        let Some(stage) = Stage::enter(a_container_gives_its_keys).await else { return };
        let service = Service::start(|request| {
            assert!(request.starts_with("GET /keys "), "{request}");
            let body =
                format!(r#"{{"AccessKeyId":"TASK","SecretAccessKey":"s","Token":"t","Expiration":"{IN_2100}"}}"#);
            (200, "", body)
        })
        .await;
        let home = tempfile::tempdir().unwrap();
        let uri = format!("{}/keys", service.url);
        let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()), NO_METADATA];
        let found = stage.play(Part::DefaultChain, home.path(), &variables).await;
        assert_eq!(found, "TASK Some(\"t\") by container");
    }

    #[tokio::test]
    async fn a_pod_takes_its_role_with_a_web_identity_token() {
        let Some(stage) = Stage::enter(a_pod_takes_its_role_with_a_web_identity_token).await else { return };
        let service = Service::start(|request| {
            assert!(request.contains("Action=AssumeRoleWithWebIdentity"), "{request}");
            assert!(request.contains("WebIdentityToken=jwt"), "{request}");
            let body = format!(
                "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                 <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>WEB</AccessKeyId>\
                 <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{IN_2100}</Expiration>\
                 </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
            );
            (200, "", body)
        })
        .await;
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "jwt").unwrap();
        let variables = [
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/reader"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "token"),
            ("AWS_ENDPOINT_URL_STS", service.url.as_str()),
            NO_METADATA,
        ];
        let found = stage.play(Part::DefaultChain, home.path(), &variables).await;
        assert_eq!(found, "WEB Some(\"t\") by web identity");
    }
}

#[tokio::test]
async fn an_anonymous_store_asks_no_provider() {
    let alibaba = AlibabaEnvironment { access_key_id: some("half"), ..AlibabaEnvironment::default() };
    let config = CredentialsConfig { anonymous: true, alibaba, ..CredentialsConfig::default() };
    let store = StoreCredentials::new(&config, Arc::new(SystemClock), SmallRng::seed_from_u64(1), &http());
    assert_eq!(store.current().await, Ok(None));
    store.refresh().await;
    assert_eq!(store.describe(), "anonymous");
}

#[tokio::test]
async fn fixed_credentials_are_used_whatever_the_environment_has() {
    let known = Credentials::new("id", "secret", None);
    let alibaba = AlibabaEnvironment { access_key_id: some("half"), ..AlibabaEnvironment::default() };
    let config = CredentialsConfig { fixed: Some(known.clone()), alibaba, ..CredentialsConfig::default() };
    let store = StoreCredentials::new(&config, Arc::new(SystemClock), SmallRng::seed_from_u64(1), &http());
    assert_eq!(store.current().await, Ok(Some(Arc::new(known.clone()))));
    store.refresh().await;
    assert_eq!(store.current().await, Ok(Some(Arc::new(known))));
    assert_eq!(store.describe(), "fixed");
}
