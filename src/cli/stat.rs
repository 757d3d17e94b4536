//! `streamvol stat s3://...`: what the mount would say about one entry.

use std::io::{self, IsTerminal, Write};

use super::browse::{Place, find, mode_text, name_bytes, time_text, written};
use super::error::CliError;
use crate::config::resolve::BrowseSettings;
use crate::config::uri::BucketUri;
use crate::fuse::AttributeConfig;
use crate::model::{ByteSize, ETag};
use crate::namespace::NodeKind;
use crate::worker::Bucket;

/// Shows the entry.
pub(super) async fn run(uri: &BucketUri, settings: &BrowseSettings) -> Result<(), CliError> {
    let bucket = Bucket::open(&settings.volume.store)?;
    let place = find(&bucket, uri).await?;
    let details = details(uri, &place, &settings.volume.fuse.attributes, io::stdout().is_terminal());
    written(io::stdout().lock().write_all(&details))
}

fn details(uri: &BucketUri, place: &Place, attributes: &AttributeConfig, terminal: bool) -> Vec<u8> {
    let mut rows: Vec<(&str, Vec<u8>)> = Vec::new();
    let kind = match place {
        Place::Directory => {
            rows.push(("prefix", name_bytes(uri.directory_prefix().as_bytes(), terminal)));
            rows.push(("kind", b"directory".to_vec()));
            NodeKind::Directory
        }
        Place::File(object) => {
            rows.push(("key", name_bytes(object.key.as_bytes(), terminal)));
            rows.push(("kind", b"file".to_vec()));
            let size = format!("{} ({})", object.size_bytes, ByteSize(object.size_bytes));
            rows.push(("size", size.into_bytes()));
            rows.push(("modified", format!("{} UTC", time_text(object.modified)).into_bytes()));
            let etag = object.etag.as_ref().map_or_else(|| "(the store lists none)".to_owned(), ETag::to_string);
            rows.push(("etag", etag.into_bytes()));
            NodeKind::File { size_bytes: object.size_bytes }
        }
    };
    rows.push(("mode", mode_text(kind, attributes).into_bytes()));
    rows.push(("owner", format!("uid {}, gid {}", attributes.uid, attributes.gid).into_bytes()));
    let lines = rows.iter().map(|(label, value)| [format!("{label:>8}: ").as_bytes(), value, b"\n"].concat());
    lines.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::model::UnixMillis;
    use crate::store::ListedObject;

    fn shown(uri: &str, place: &Place) -> String {
        let attributes = AttributeConfig { uid: 1000, gid: 100, file_mode: 0o644, dir_mode: 0o755 };
        let uri = BucketUri::parse(OsStr::new(uri)).unwrap();
        String::from_utf8(details(&uri, place, &attributes, true)).unwrap()
    }

    #[test]
    fn a_file_is_told_with_key_size_time_and_etag() {
        let object = ListedObject {
            key: "a/b.jpg".into(),
            size_bytes: 3 << 20,
            modified: UnixMillis(1_700_000_000_000),
            etag: ETag::parse("\"d41d8cd98f00b204e9800998ecf8427e-2\""),
        };
        assert_eq!(
            shown("s3://bucket/a/b.jpg", &Place::File(object)),
            "     key: a/b.jpg\n    kind: file\n    size: 3145728 (3 MiB)\nmodified: 2023-11-14 22:13:20 UTC\n    \
             etag: d41d8cd98f00b204e9800998ecf8427e-2\n    mode: -rw-r--r--\n   owner: uid 1000, gid 100\n"
        );
    }

    #[test]
    fn a_directory_is_told_with_its_prefix() {
        assert_eq!(
            shown("s3://bucket/a", &Place::Directory),
            "  prefix: a/\n    kind: directory\n    mode: drwxr-xr-x\n   owner: uid 1000, gid 100\n"
        );
    }
}
