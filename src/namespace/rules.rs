//! Which keys can be paths, and the record of those that cannot.
//!
//! A key is cut at every `/`; each component must be a name a directory can hold ([`EntryName`]). A key that fails is
//! left out whole: it makes no directory and hides no sibling. Nothing is ever rewritten to fit, because a name that does
//! not spell its key would be a second name for another object. Logging is left to the caller: warnings are data here.

use std::fmt;

use crate::model::{EntryName, MAX_NAME_BYTES, ObjectKey};

/// Most warnings kept of one listing: as many lines as a person looks through. The counts go on.
pub const MAX_WARNINGS: usize = 64;

/// Why a key has no place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The key begins with `/` (after the mount's prefix).
    LeadingSlash,
    /// Two slashes in a row.
    EmptyComponent,
    /// A component is `.` or `..`.
    DotComponent,
    /// A NUL byte, which no system call can carry.
    NulByte,
    /// A component longer than [`MAX_NAME_BYTES`].
    NameTooLong,
}

impl RejectReason {
    /// Every reason; its place here is its place in the snapshot's header.
    pub const ALL: [RejectReason; 5] = [
        RejectReason::LeadingSlash,
        RejectReason::EmptyComponent,
        RejectReason::DotComponent,
        RejectReason::NulByte,
        RejectReason::NameTooLong,
    ];

    /// A word for logs and metric labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            RejectReason::LeadingSlash => "leading_slash",
            RejectReason::EmptyComponent => "empty_component",
            RejectReason::DotComponent => "dot_component",
            RejectReason::NulByte => "nul_byte",
            RejectReason::NameTooLong => "name_too_long",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// How many keys were left out, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rejections {
    counts: [u64; RejectReason::ALL.len()],
}

impl Rejections {
    /// Keys left out for this reason.
    #[must_use]
    pub fn count(&self, reason: RejectReason) -> u64 {
        self.counts[reason.index()]
    }

    /// Keys left out for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn add(&mut self, reason: RejectReason, keys: u64) {
        self.counts[reason.index()] = self.counts[reason.index()].saturating_add(keys);
    }
}

/// Where a key stands in the tree. All parts are relative to the mount's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement<'a> {
    /// Directories on the way, each followed by `/`; empty for the root.
    pub(super) directories: &'a [u8],
    /// Name of the file; `None` for a directory marker (a key that ends in `/`, or the prefix itself).
    pub(super) name: Option<EntryName<'a>>,
}

/// A key without a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejected<'a> {
    pub(super) reason: RejectReason,
    /// Directories in front of the offending component, each followed by `/`.
    pub(super) directory: &'a [u8],
}

/// Places a key, given without the mount's prefix.
pub(super) fn classify(key: &[u8]) -> Result<Placement<'_>, Rejected<'_>> {
    if key.first() == Some(&b'/') {
        return Err(Rejected { reason: RejectReason::LeadingSlash, directory: b"" });
    }
    let mut start = 0;
    for (position, _) in key.iter().enumerate().filter(|&(_, &byte)| byte == b'/') {
        name_at(key, start, position)?;
        start = position + 1;
    }
    let name = if start == key.len() { None } else { Some(name_at(key, start, key.len())?) };
    Ok(Placement { directories: &key[..start], name })
}

fn name_at(key: &[u8], start: usize, end: usize) -> Result<EntryName<'_>, Rejected<'_>> {
    let component = &key[start..end];
    EntryName::new(component).ok_or_else(|| Rejected { reason: reason_against(component), directory: &key[..start] })
}

fn reason_against(component: &[u8]) -> RejectReason {
    match component {
        b"" => RejectReason::EmptyComponent,
        b"." | b".." => RejectReason::DotComponent,
        long if long.len() > MAX_NAME_BYTES => RejectReason::NameTooLong,
        _ => RejectReason::NulByte,
    }
}

/// What a person should hear about one directory of the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The directory, as a full key with its trailing slash; empty for the top of the bucket.
    pub directory: ObjectKey,
    /// The first key in it that gave cause, in full.
    pub key: ObjectKey,
    /// What about it.
    pub cause: WarningCause,
}

/// What a [`Warning`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningCause {
    /// The key cannot be a path and is not shown.
    Rejected(RejectReason),
    /// A directory marker has bytes, which no path leads to.
    MarkerWithBytes,
    /// A file and a directory have the same name: the directory is shown.
    ShadowedFile,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { directory, key, cause } = self;
        match cause {
            WarningCause::Rejected(reason) => {
                write!(f, "key \"{key}\" cannot be a path ({}) and is not shown", reason.label())?;
            }
            WarningCause::MarkerWithBytes => {
                write!(f, "\"{key}\" marks a directory but has bytes: they cannot be read through the mount")?;
            }
            WarningCause::ShadowedFile => {
                write!(f, "object \"{key}\" is hidden by the directory of the same name")?;
            }
        }
        write!(f, "; further keys of directory \"{directory}\" are only counted")
    }
}

/// Collects warnings: at most one a directory, at most [`MAX_WARNINGS`] in all.
#[derive(Debug, Default)]
pub(super) struct Warnings(Vec<Warning>);

impl Warnings {
    /// Notes a cause. `directory` and `key` are relative to `prefix`; they are copied only when the warning is kept.
    pub(super) fn note(&mut self, prefix: &[u8], directory: &[u8], key: &[u8], cause: WarningCause) {
        let known = |warning: &Warning| &warning.directory.as_bytes()[prefix.len()..] == directory;
        if self.0.len() < MAX_WARNINGS && !self.0.iter().any(known) {
            let full = |rest: &[u8]| ObjectKey::from([prefix, rest].concat());
            self.0.push(Warning { directory: full(directory), key: full(key), cause });
        }
    }

    pub(super) fn into_vec(self) -> Vec<Warning> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_cut_into_directories_and_a_name() {
        for (key, directories, name) in [
            (&b"a"[..], &b""[..], Some(&b"a"[..])),
            (b"a/b", b"a/", Some(b"b")),
            (b"a/b/", b"a/b/", None),
            (b"", b"", None),
            (b"a b\\ ./...\xff\n", b"a b\\ ./", Some(b"...\xff\n")),
        ] {
            let placement = classify(key).unwrap();
            assert_eq!(placement.directories, directories);
            assert_eq!(placement.name.map(EntryName::as_bytes), name);
        }
    }

    #[test]
    fn a_key_that_cannot_be_a_path_says_why_and_where() {
        let long = [b"d/".to_vec(), vec![b'x'; MAX_NAME_BYTES + 1]].concat();
        for (key, reason, directory) in [
            (&b"/"[..], RejectReason::LeadingSlash, &b""[..]),
            (b"//x", RejectReason::LeadingSlash, b""),
            (b"a//b", RejectReason::EmptyComponent, b"a/"),
            (b"a//", RejectReason::EmptyComponent, b"a/"),
            (b"a/./b", RejectReason::DotComponent, b"a/"),
            (b"a/..", RejectReason::DotComponent, b"a/"),
            (b"../a", RejectReason::DotComponent, b""),
            (b"./", RejectReason::DotComponent, b""),
            (b"a/b\0c", RejectReason::NulByte, b"a/"),
            (&long, RejectReason::NameTooLong, b"d/"),
        ] {
            assert_eq!(classify(key), Err(Rejected { reason, directory }), "{key:?}");
        }
    }

    #[test]
    fn warnings_are_one_a_directory_and_bounded_in_number() {
        let mut warnings = Warnings::default();
        for directory in 0..2 * MAX_WARNINGS {
            for key in ["x", "y"] {
                let directory = format!("{directory}/");
                let key = format!("{directory}/{key}");
                let cause = WarningCause::Rejected(RejectReason::EmptyComponent);
                warnings.note(b"p/", directory.as_bytes(), key.as_bytes(), cause);
            }
        }
        let warnings = warnings.into_vec();
        assert_eq!(warnings.len(), MAX_WARNINGS);
        assert_eq!(warnings[1].directory, ObjectKey::from("p/1/"));
        assert!(warnings[1].to_string().contains("\"p/1//x\" cannot be a path (empty_component)"), "{}", warnings[1]);
    }
}
