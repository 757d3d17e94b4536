//! (being built)
#![allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProviderOrder {
    #[default]
    AwsFirst,
    AlibabaFirst,
}
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlibabaEnvironment {
    pub role_arn: Option<String>,
}
impl AlibabaEnvironment {
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        AlibabaEnvironment { role_arn: lookup("ALIBABA_CLOUD_ROLE_ARN") }
    }
}
#[derive(Debug, Clone, Default)]
pub struct CredentialsConfig {
    pub anonymous: bool,
    pub profile: Option<String>,
    pub region_hint: Option<String>,
    pub order: ProviderOrder,
    pub alibaba: AlibabaEnvironment,
}
