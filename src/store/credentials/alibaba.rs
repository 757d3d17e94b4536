//! The providers of Alibaba Cloud: keys in variables, a role for a pod (RRSA), a local credentials service, an instance's role.
//!
//! Asked in this order; those that no variable points to are left out.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::provider::{Fetched, Provider, ProviderFailure};
use crate::store::clock::Clock;

/// STS of all regions; a pod's environment usually names a nearer one.
const STS_ENDPOINT: &str = "sts.aliyuncs.com";

/// The metadata service of an instance, at the same address on every one.
const METADATA_URL: &str = "http://100.100.100.200";

/// How long a metadata token is asked for: the longest there is. It is used once.
const METADATA_TOKEN_SECONDS: &str = "21600";

/// How long STS credentials are to last: what a role allows unless it says otherwise.
const STS_DURATION_SECONDS: u32 = 3600;

/// Longest time for one question to STS or a credentials service.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Longest time for one question to the metadata service, which is on the same machine.
const METADATA_DEADLINE: Duration = Duration::from_secs(2);

/// The variables of Alibaba Cloud's SDKs that say where credentials are; `config` reads them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AlibabaEnvironment {
    /// `ALIBABA_CLOUD_ACCESS_KEY_ID`
    pub access_key_id: Option<String>,
    /// `ALIBABA_CLOUD_ACCESS_KEY_SECRET`
    pub access_key_secret: Option<String>,
    /// `ALIBABA_CLOUD_SECURITY_TOKEN`
    pub security_token: Option<String>,
    /// `ALIBABA_CLOUD_ROLE_ARN`
    pub role_arn: Option<String>,
    /// `ALIBABA_CLOUD_OIDC_PROVIDER_ARN`
    pub oidc_provider_arn: Option<String>,
    /// `ALIBABA_CLOUD_OIDC_TOKEN_FILE`
    pub oidc_token_file: Option<String>,
    /// `ALIBABA_CLOUD_ROLE_SESSION_NAME`
    pub role_session_name: Option<String>,
    /// `ALIBABA_CLOUD_STS_ENDPOINT`: a host, or a URL.
    pub sts_endpoint: Option<String>,
    /// `ALIBABA_CLOUD_CREDENTIALS_URI`
    pub credentials_uri: Option<String>,
    /// `ALIBABA_CLOUD_ECS_METADATA`: name of the instance's role.
    pub ecs_metadata: Option<String>,
}

impl AlibabaEnvironment {
    /// Takes each variable from `lookup`; an empty one counts as not set.
    #[must_use]
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        AlibabaEnvironment {
            access_key_id: get("ALIBABA_CLOUD_ACCESS_KEY_ID"),
            access_key_secret: get("ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
            security_token: get("ALIBABA_CLOUD_SECURITY_TOKEN"),
            role_arn: get("ALIBABA_CLOUD_ROLE_ARN"),
            oidc_provider_arn: get("ALIBABA_CLOUD_OIDC_PROVIDER_ARN"),
            oidc_token_file: get("ALIBABA_CLOUD_OIDC_TOKEN_FILE"),
            role_session_name: get("ALIBABA_CLOUD_ROLE_SESSION_NAME"),
            sts_endpoint: get("ALIBABA_CLOUD_STS_ENDPOINT"),
            credentials_uri: get("ALIBABA_CLOUD_CREDENTIALS_URI"),
            ecs_metadata: get("ALIBABA_CLOUD_ECS_METADATA"),
        }
    }
}

impl fmt::Debug for AlibabaEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlibabaEnvironment")
            .field("access_key_id", &self.access_key_id)
            .field("role_arn", &self.role_arn)
            .field("oidc_token_file", &self.oidc_token_file)
            .field("sts_endpoint", &self.sts_endpoint)
            .field("ecs_metadata", &self.ecs_metadata)
            .finish_non_exhaustive()
    }
}

/// Those that `environment` points to; its keys come first.
pub(super) fn providers(
    environment: &AlibabaEnvironment,
    clock: &Arc<dyn Clock>,
    http: &reqwest::Client,
) -> Vec<Box<dyn Provider>> {
    let provider = |kind| {
        let (clock, http) = (Arc::clone(clock), http.clone());
        Box::new(AlibabaProvider { kind, clock, http }) as Box<dyn Provider>
    };
    let mut found = vec![provider(Kind::Environment(environment.clone()))];
    if environment.oidc_provider_arn.is_some() || environment.oidc_token_file.is_some() {
        found.push(provider(Kind::PodRole(environment.clone())));
    }
    if let Some(uri) = &environment.credentials_uri {
        found.push(provider(Kind::Service(uri.clone())));
    }
    if let Some(role) = &environment.ecs_metadata {
        found.push(provider(Kind::InstanceRole { url: METADATA_URL.to_owned(), role: role.clone() }));
    }
    found
}

/// An instance's role at another address than the metadata service's.
#[cfg(test)]
pub(super) fn instance_role_at(url: &str, role: &str, http: &reqwest::Client) -> Box<dyn Provider> {
    let kind = Kind::InstanceRole { url: url.to_owned(), role: role.to_owned() };
    Box::new(AlibabaProvider { kind, clock: Arc::new(crate::store::clock::SystemClock), http: http.clone() })
}

#[derive(Debug)]
enum Kind {
    Environment(AlibabaEnvironment),
    PodRole(AlibabaEnvironment),
    Service(String),
    InstanceRole { url: String, role: String },
}

#[derive(Debug)]
struct AlibabaProvider {
    kind: Kind,
    clock: Arc<dyn Clock>,
    http: reqwest::Client,
}

impl Provider for AlibabaProvider {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Environment(_) => "Alibaba Cloud environment",
            Kind::PodRole(_) => "Alibaba Cloud pod role (RRSA)",
            Kind::Service(_) => "Alibaba Cloud credentials URI",
            Kind::InstanceRole { .. } => "Alibaba Cloud instance role",
        }
    }

    fn fetch(&self) -> BoxFuture<'_, Result<Fetched, ProviderFailure>> {
        async {
            match &self.kind {
                Kind::Environment(environment) => keys_of(environment),
                Kind::PodRole(environment) => self.assume_role(environment).await.map_err(ProviderFailure::Failed),
                Kind::Service(uri) => self.ask_service(uri).await.map_err(ProviderFailure::Failed),
                Kind::InstanceRole { url, role } => self.ask_instance(url, role).await.map_err(ProviderFailure::Failed),
            }
        }
        .boxed()
    }
}

fn keys_of(environment: &AlibabaEnvironment) -> Result<Fetched, ProviderFailure> {
    match (&environment.access_key_id, &environment.access_key_secret) {
        (Some(id), Some(secret)) => Ok(Fetched {
            access_key_id: id.clone(),
            secret_access_key: secret.clone(),
            session_token: environment.security_token.clone(),
            expires: None,
        }),
        (None, None) => Err(ProviderFailure::NotConfigured("ALIBABA_CLOUD_ACCESS_KEY_ID is not set".to_owned())),
        (Some(_), None) => Err(ProviderFailure::Failed("ALIBABA_CLOUD_ACCESS_KEY_SECRET is not set".to_owned())),
        (None, Some(_)) => Err(ProviderFailure::Failed("ALIBABA_CLOUD_ACCESS_KEY_ID is not set".to_owned())),
    }
}

impl AlibabaProvider {
    /// AssumeRoleWithOIDC (STS, version 2015-04-01): the token is the proof, so the request is not signed.
    async fn assume_role(&self, environment: &AlibabaEnvironment) -> Result<Fetched, String> {
        let need = |value: &Option<String>, name: &str| value.clone().ok_or_else(|| format!("{name} is not set"));
        let role_arn = need(&environment.role_arn, "ALIBABA_CLOUD_ROLE_ARN")?;
        let provider_arn = need(&environment.oidc_provider_arn, "ALIBABA_CLOUD_OIDC_PROVIDER_ARN")?;
        let token_file = need(&environment.oidc_token_file, "ALIBABA_CLOUD_OIDC_TOKEN_FILE")?;
        let token = tokio::task::spawn_blocking({
            let path = token_file.clone();
            move || std::fs::read_to_string(path)
        });
        let token = match token.await {
            Ok(Ok(token)) => token,
            Ok(Err(error)) => return Err(format!("cannot read the token file {token_file}: {error}")),
            Err(error) => return Err(format!("cannot read the token file {token_file}: {error}")),
        };
        let endpoint = environment.sts_endpoint.as_deref().unwrap_or(STS_ENDPOINT).trim_end_matches('/');
        let scheme = if endpoint.contains("://") { "" } else { "https://" };
        let now = OffsetDateTime::from(self.clock.date()).replace_nanosecond(0).map_err(|error| error.to_string())?;
        let query = encode_pairs(&[
            ("Action", "AssumeRoleWithOIDC"),
            ("Format", "JSON"),
            ("Version", "2015-04-01"),
            ("Timestamp", &now.format(&Rfc3339).map_err(|error| error.to_string())?),
        ]);
        let form = encode_pairs(&[
            ("RoleArn", &role_arn),
            ("OIDCProviderArn", &provider_arn),
            ("OIDCToken", token.trim()),
            ("RoleSessionName", environment.role_session_name.as_deref().unwrap_or("streamvol")),
            ("DurationSeconds", &STS_DURATION_SECONDS.to_string()),
        ]);
        let request = self
            .http
            .post(format!("{scheme}{endpoint}/?{query}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .timeout(REQUEST_DEADLINE)
            .body(form);
        read_credentials(&send(request, "STS").await?, "STS")
    }

    async fn ask_service(&self, uri: &str) -> Result<Fetched, String> {
        let request = self.http.get(uri).timeout(REQUEST_DEADLINE);
        read_credentials(&send(request, "the credentials service").await?, "the credentials service")
    }

    async fn ask_instance(&self, url: &str, role: &str) -> Result<Fetched, String> {
        let service = "the metadata service";
        let token = self
            .http
            .put(format!("{url}/latest/api/token"))
            .header("x-aliyun-ecs-metadata-token-ttl-seconds", METADATA_TOKEN_SECONDS)
            .timeout(METADATA_DEADLINE);
        let role = utf8_percent_encode(role, NON_ALPHANUMERIC);
        let mut request =
            self.http.get(format!("{url}/latest/meta-data/ram/security-credentials/{role}")).timeout(METADATA_DEADLINE);
        // Instances set up before tokens existed answer without one.
        if let Ok(token) = send(token, service).await {
            request = request.header("x-aliyun-ecs-metadata-token", token.trim());
        }
        read_credentials(&send(request, service).await?, service)
    }
}

fn encode_pairs(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    pairs.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect::<Vec<_>>().join("&")
}

/// The body of a successful answer; otherwise what the service says.
async fn send(request: reqwest::RequestBuilder, service: &str) -> Result<String, String> {
    // The URL stays out of the message: a credentials URI may hold a secret.
    let fail = |error: reqwest::Error| format!("{service} does not answer: {}", with_causes(&error.without_url()));
    let response = request.header("accept-encoding", "identity").send().await.map_err(fail)?;
    let status = response.status();
    let body = String::from_utf8_lossy(&response.bytes().await.map_err(fail)?).into_owned();
    if status.is_success() {
        return Ok(body);
    }
    let fields = fields_of(&body);
    let said = |name: &str| fields.get(name).map_or("", String::as_str);
    Err(format!("{service} answers {}: {} {}", status.as_u16(), said("Code"), said("Message")).trim_end().to_owned())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn read_credentials(body: &str, service: &str) -> Result<Fetched, String> {
    let fields = fields_of(body);
    if let Some(code) = fields.get("Code").filter(|code| *code != "Success" && *code != "200") {
        return Err(format!("{service} answers {code}"));
    }
    let need = |name: &str| fields.get(name).cloned().ok_or_else(|| format!("the answer of {service} has no {name}"));
    let expires = match fields.get("Expiration") {
        None => None,
        Some(text) => Some(SystemTime::from(
            OffsetDateTime::parse(text, &Rfc3339)
                .map_err(|_| format!("the answer of {service} has an Expiration that is no date"))?,
        )),
    };
    Ok(Fetched {
        access_key_id: need("AccessKeyId")?,
        secret_access_key: need("AccessKeySecret")?,
        session_token: fields.get("SecurityToken").cloned(),
        expires,
    })
}

/// Names and texts of an answer in JSON or XML, at whatever depth: the services nest the same names differently.
fn fields_of(body: &str) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    match serde_json::from_str(body) {
        Ok(value) => collect_json("", &value, &mut fields),
        Err(_) => collect_xml(body, &mut fields),
    }
    fields
}

fn collect_json(name: &str, value: &serde_json::Value, fields: &mut HashMap<String, String>) {
    match value {
        serde_json::Value::Object(object) => {
            object.iter().for_each(|(name, value)| collect_json(name, value, fields));
        }
        serde_json::Value::String(text) if !text.is_empty() => {
            fields.insert(name.to_owned(), text.clone());
        }
        serde_json::Value::Number(number) => {
            fields.insert(name.to_owned(), number.to_string());
        }
        _ => {}
    }
}

fn collect_xml(body: &str, fields: &mut HashMap<String, String>) {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(body);
    let mut name = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned(),
            Ok(Event::Text(text)) => {
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                if !text.is_empty() {
                    fields.insert(name.clone(), text);
                }
            }
            // What can be read of a broken answer is still the best account of it.
            Ok(Event::Eof) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
