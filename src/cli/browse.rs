//! What `ls` and `stat` share: finding what an address names, and how a node is written.

use std::io;

use time::OffsetDateTime;
use time::macros::format_description;

use super::error::CliError;
use crate::config::uri::BucketUri;
use crate::fuse::AttributeConfig;
use crate::model::{EntryName, ObjectKey, UnixMillis};
use crate::namespace::NodeKind;
use crate::store::{ListRequest, ListedObject, ObjectStore, StoreError};
use crate::worker::Bucket;

/// What an address names. Where both are there the directory wins, as in the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Keys begin with the address and a slash.
    Directory,
    /// One object.
    File(ListedObject),
}

/// Finds out what `uri` names in `bucket`, in two requests at most; what the store refuses is explained.
pub(super) async fn find(bucket: &Bucket, uri: &BucketUri) -> Result<Place, CliError> {
    match locate(&*bucket.starting_store(), uri).await {
        Err(CliError::Store(error)) => Err(bucket.explain(error, &uri.prefix).await.into()),
        found => found,
    }
}

async fn locate(store: &dyn ObjectStore, uri: &BucketUri) -> Result<Place, CliError> {
    let directory = uri.directory_prefix();
    if has_keys(store, &directory).await? || directory.is_empty() {
        return Ok(Place::Directory);
    }
    match object(store, &uri.prefix).await? {
        Some(object) if file_name(&object.key).is_some() => Ok(Place::File(object)),
        _ => Err(CliError::Nothing(uri.to_string())),
    }
}

/// The last component of a key, if it can be a name.
pub(super) fn file_name(key: &ObjectKey) -> Option<&[u8]> {
    let name = key.as_bytes().rsplit(|&byte| byte == b'/').next()?;
    EntryName::new(name).map(EntryName::as_bytes)
}

async fn has_keys(store: &dyn ObjectStore, prefix: &ObjectKey) -> Result<bool, StoreError> {
    let mut request = ListRequest { prefix: prefix.clone(), max_keys: Some(1), ..ListRequest::default() };
    loop {
        let page = store.list(&request).await?;
        // A store that ignores the prefix must not make up a directory.
        if page.objects.iter().any(|object| object.key.as_bytes().starts_with(prefix.as_bytes())) {
            return Ok(true);
        }
        match page.next {
            Some(next) => request.continuation = Some(next),
            None => return Ok(false),
        }
    }
}

/// The object with exactly that key: in byte order it is the first of all keys that begin with it.
async fn object(store: &dyn ObjectStore, key: &ObjectKey) -> Result<Option<ListedObject>, StoreError> {
    let request = ListRequest { prefix: key.clone(), ..ListRequest::default() };
    let page = store.list(&request).await?;
    Ok(page.objects.into_iter().find(|object| object.key == *key))
}

/// Type and permissions, as `ls -l` shows them.
pub(super) fn mode_text(kind: NodeKind, attributes: &AttributeConfig) -> String {
    let (letter, mode) = match kind {
        NodeKind::Directory => ('d', attributes.dir_mode),
        NodeKind::File { .. } => ('-', attributes.file_mode),
    };
    let bits = (0..9).map(|index| {
        let set = mode & (0o400 >> index) != 0;
        if set { ['r', 'w', 'x'][index % 3] } else { '-' }
    });
    std::iter::once(letter).chain(bits).collect()
}

/// A moment in UTC, to the second; one beyond the calendar in milliseconds.
pub(super) fn time_text(moment: UnixMillis) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(moment.0) * 1_000_000)
        .ok()
        .and_then(|moment| moment.format(&format).ok())
        .unwrap_or_else(|| format!("{} ms", moment.0))
}

/// Bytes of a name for output: as they are for programs, without control characters on a terminal.
pub(super) fn name_bytes(name: &[u8], terminal: bool) -> Vec<u8> {
    if terminal { ObjectKey::from(name).to_string().into_bytes() } else { name.to_vec() }
}

/// For errors of standard output: a reader that has had enough, as `head`, is no error.
pub(super) fn written(outcome: io::Result<()>) -> Result<(), CliError> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::system("write the answer")(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::ffi::OsStr;

    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;
    use crate::cli::exit_code::ExitCode;
    use crate::store::{BodySink, GetRequest, ListPage, StoreErrorKind};

    /// A store with these keys, which lists one at a time, after an empty page.
    #[derive(Debug)]
    struct Keys(Vec<&'static str>);

    impl ObjectStore for Keys {
        fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
            let matching = self.0.iter().filter(|key| key.as_bytes().starts_with(request.prefix.as_bytes()));
            let objects: Vec<ListedObject> = matching.map(|key| listed(key)).collect();
            let page = match (&request.continuation, request.max_keys) {
                (None, Some(_)) => ListPage { next: Some("more".to_owned()), ..ListPage::default() },
                _ => ListPage { objects, ..ListPage::default() },
            };
            async { Ok(page) }.boxed()
        }

        fn get<'a>(
            &'a self,
            request: &'a GetRequest,
            _body: &'a mut dyn BodySink,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            async { Err(StoreError::new(StoreErrorKind::NotFound, "get", &request.key, "no bytes here")) }.boxed()
        }
    }

    fn listed(key: &str) -> ListedObject {
        ListedObject { key: key.into(), size_bytes: 7, modified: UnixMillis(0), etag: None }
    }

    async fn found(uri: &str) -> Result<Place, CliError> {
        let store = Keys(vec!["a", "a!", "a.txt", "a.txt.old", "a/b", "dir/", "empty//x", "slash/"]);
        locate(&store, &BucketUri::parse(OsStr::new(uri)).unwrap()).await
    }

    #[tokio::test]
    async fn an_address_names_a_directory_or_a_file_and_the_directory_wins() {
        for uri in ["s3://b1", "s3://b1/", "s3://b1/a", "s3://b1/a/", "s3://b1/dir", "s3://b1/dir/", "s3://b1/empty"] {
            assert_eq!(found(uri).await.unwrap(), Place::Directory, "{uri}");
        }
        assert_eq!(found("s3://b1/a.txt").await.unwrap(), Place::File(listed("a.txt")));
    }

    #[tokio::test]
    async fn an_empty_bucket_is_an_empty_directory() {
        let uri = BucketUri::parse(OsStr::new("s3://b1")).unwrap();
        assert_eq!(locate(&Keys(Vec::new()), &uri).await.unwrap(), Place::Directory);
    }

    #[tokio::test]
    async fn the_beginning_of_a_name_names_nothing() {
        for uri in ["s3://b1/a.tx", "s3://b1/a.txt/", "s3://b1/di", "s3://b1/nothing"] {
            let error = found(uri).await.unwrap_err();
            assert_eq!(error.exit_code(), ExitCode::NotFound);
            assert_eq!(
                error.to_string(),
                format!("nothing at {uri}: `streamvol ls` of the prefix above it shows what is there")
            );
        }
    }

    #[test]
    fn modes_are_written_as_ls_does() {
        let attributes = AttributeConfig { uid: 0, gid: 0, file_mode: 0o640, dir_mode: 0o751 };
        assert_eq!(mode_text(NodeKind::Directory, &attributes), "drwxr-x--x");
        assert_eq!(mode_text(NodeKind::File { size_bytes: 1 }, &attributes), "-rw-r-----");
    }

    #[test]
    fn every_moment_can_be_written() {
        for (millis, text) in [
            (0, "1970-01-01 00:00:00"),
            (1_700_000_000_999, "2023-11-14 22:13:20"),
            (-1, "1969-12-31 23:59:59"),
            (253_402_300_799_000, "9999-12-31 23:59:59"),
            (i64::MAX, "9223372036854775807 ms"),
        ] {
            assert_eq!(time_text(UnixMillis(millis)), text);
        }
    }

    #[test]
    fn a_terminal_is_safe_from_names_and_programs_get_the_bytes() {
        assert_eq!(name_bytes(b"a\n\xff", true), b"a\\n\\xff");
        assert_eq!(name_bytes(b"a\n\xff", false), b"a\n\xff");
    }

    #[test]
    fn a_reader_that_has_had_enough_is_no_error() {
        assert!(written(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(written(Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
