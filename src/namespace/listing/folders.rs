//! What folded listings have told: folders known to hold keys.
//!
//! They are cuts that are never empty, and the measure of what remains of a range: so many folders, each of about as many
//! keys as those already listed.

use crate::model::ObjectKey;

/// Known folders, in byte order.
#[derive(Debug, Default)]
pub(super) struct Folders {
    known: Vec<ObjectKey>,
}

impl Folders {
    /// Adds what one folded page has shown.
    pub(super) fn add(&mut self, folders: impl IntoIterator<Item = ObjectKey>) {
        self.known.extend(folders);
        self.known.sort_unstable();
        self.known.dedup();
    }

    /// Those after `after` and before `end`, where `None` is the end of everything.
    pub(super) fn between(&self, after: &[u8], end: Option<&[u8]>) -> &[ObjectKey] {
        let from = self.known.partition_point(|folder| folder.as_bytes() <= after);
        let to = end.map_or(self.known.len(), |end| self.known.partition_point(|folder| folder.as_bytes() < end));
        &self.known[from..to.max(from)]
    }

    /// The innermost known folder that `key` lies in.
    pub(super) fn innermost(&self, key: &[u8]) -> Option<&ObjectKey> {
        let slashes = key.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'/');
        slashes
            .filter_map(|(slash, _)| self.known.binary_search_by(|folder| folder.as_bytes().cmp(&key[..=slash])).ok())
            .map(|found| &self.known[found])
            .next()
    }
}

/// The first key behind everything in a folder.
pub(super) fn end_of_folder(folder: &ObjectKey) -> Vec<u8> {
    let mut end = folder.as_bytes().to_vec();
    if let Some(slash) = end.last_mut() {
        *slash = b'/' + 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_by_range_and_by_key() {
        let mut folders = Folders::default();
        folders.add(["b/", "a/", "b/x/", "b/"].map(ObjectKey::from));
        let between = |after: &str, end: Option<&str>| {
            folders
                .between(after.as_bytes(), end.map(str::as_bytes))
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(between("", None), ["a/", "b/", "b/x/"]);
        assert_eq!(between("a/", Some("b/x/")), ["b/"]);
        assert_eq!(between("b/y", Some("b/")), [""; 0]);
        let innermost = |key: &str| folders.innermost(key.as_bytes()).map(ToString::to_string);
        assert_eq!(innermost("b/x/1").as_deref(), Some("b/x/"));
        assert_eq!(innermost("b/z/1").as_deref(), Some("b/"));
        assert_eq!(innermost("c"), None);
        assert_eq!(end_of_folder(&"b/".into()), b"b0");
    }
}
