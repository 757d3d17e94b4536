//! The process environment. Read here and nowhere else.

use std::ffi::OsString;
use std::path::Path;

/// Environment variables of cloud tools that hold a path, which may be relative to the current directory.
const PATH_VARIABLES: [&str; 4] =
    ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "ALIBABA_CLOUD_OIDC_TOKEN_FILE"];

/// The value of an environment variable, `None` when it is unset or empty.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The value of an environment variable as text, `None` also when it is not UTF-8.
#[must_use]
pub fn text_variable(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Variables that name a file by a relative path, with that path made absolute: for a process that changes its directory.
pub fn absolute_paths(lookup: &dyn Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
    let absolute = |name| {
        let value = lookup(name)?;
        let path = Path::new(&value);
        if path.is_absolute() { None } else { Some((name, std::path::absolute(path).ok()?.into_os_string())) }
    };
    PATH_VARIABLES.into_iter().filter_map(absolute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_paths_are_rewritten() {
        let lookup = |name: &str| match name {
            "AWS_CONFIG_FILE" => Some("here/config".into()),
            "AWS_SHARED_CREDENTIALS_FILE" => Some("/there/credentials".into()),
            _ => None,
        };
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute_paths(&lookup), [("AWS_CONFIG_FILE", here.join("here/config").into_os_string())]);
    }

    #[test]
    fn an_unset_variable_is_none() {
        assert_eq!(variable("STREAMVOL_NO_SUCH_VARIABLE"), None);
    }
}
