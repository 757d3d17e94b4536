//! `streamvol ls s3://...`: what the mount would show, as `ls -l` would.
//!
//! The names come from the same namespace a mount would have, so they are the mount's, with all its rules.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;

use super::browse::{Place, file_name, find, mode_text, name_bytes, time_text, written};
use super::error::CliError;
use super::exit_code::ExitCode;
use super::progress::{Counter, Display, REFRESH};
use super::say;
use crate::config::resolve::BrowseSettings;
use crate::config::uri::BucketUri;
use crate::fuse::AttributeConfig;
use crate::model::{NodeId, UnixMillis};
use crate::namespace::{DirectoryEntry, Namespace, NodeKind};
use crate::worker::{self, Bucket};

/// Lists.
pub(super) async fn run(uri: &BucketUri, settings: &BrowseSettings) -> Result<(), CliError> {
    let bucket = Bucket::open(&settings.volume.store)?;
    let place = find(&bucket, uri).await?;
    let attributes = &settings.volume.fuse.attributes;
    let mut output =
        Output { to: BufWriter::new(io::stdout().lock()), terminal: io::stdout().is_terminal(), attributes };
    match place {
        Place::File(object) => {
            let kind = NodeKind::File { size_bytes: object.size_bytes };
            let name = file_name(&object.key).unwrap_or_default();
            written(output.line(kind, object.modified, name).and_then(|()| output.to.flush()))
        }
        Place::Directory => {
            let namespace = build_with_progress(&bucket, settings).await?;
            let mut paths = vec![(NodeId::ROOT, Vec::new())];
            while let Some((directory, path)) = paths.pop() {
                let (outcome, below) = list_directory(&namespace, directory, &path, &mut output)?;
                written(outcome)?;
                if settings.recursive {
                    // The last one is taken next, so this keeps their order.
                    paths.extend(below.into_iter().rev());
                }
            }
            written(output.to.flush())
        }
    }
}

type Below = Vec<(NodeId, Vec<u8>)>;

/// Writes one directory's entries; returns the directories below.
fn list_directory<W: Write>(
    namespace: &Namespace,
    directory: NodeId,
    path: &[u8],
    output: &mut Output<'_, W>,
) -> Result<(io::Result<()>, Below), CliError> {
    let mut below = Vec::new();
    let mut outcome = Ok(());
    let mut visit = |entry: DirectoryEntry<'_>| {
        if matches!(entry.name, b"." | b"..") {
            return ControlFlow::Continue(());
        }
        let entry_path = [path, entry.name].concat();
        outcome = output.line(entry.node.kind, entry.node.modified, &entry_path);
        if entry.node.kind == NodeKind::Directory {
            below.push((entry.node.id, [entry_path.as_slice(), b"/"].concat()));
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    namespace.read_dir(directory, 0, &mut visit).map_err(|error| CliError::Failed {
        message: format!("the listing cannot be read back: {error}"),
        code: ExitCode::Listing,
    })?;
    Ok((outcome, below))
}

async fn build_with_progress(bucket: &Bucket, settings: &BrowseSettings) -> Result<Namespace, CliError> {
    let counter = Counter::default();
    let mut display = Display::new(say);
    let mut build = std::pin::pin!(worker::build_namespace(bucket, &settings.volume, &counter));
    let mut refresh = tokio::time::interval(REFRESH);
    loop {
        tokio::select! {
            built = &mut build => return Ok(built?),
            _ = refresh.tick() => display.show(counter.objects()),
        }
    }
}

struct Output<'a, W> {
    to: W,
    terminal: bool,
    attributes: &'a AttributeConfig,
}

impl<W: Write> Output<'_, W> {
    /// `-rwxr-xr-x       115200 2026-01-02 03:04:05 name`
    fn line(&mut self, kind: NodeKind, modified: UnixMillis, name: &[u8]) -> io::Result<()> {
        let size_bytes = match kind {
            NodeKind::Directory => 0,
            NodeKind::File { size_bytes } => size_bytes,
        };
        write!(self.to, "{} {size_bytes:>14} {} ", mode_text(kind, self.attributes), time_text(modified))?;
        self.to.write_all(&name_bytes(name, self.terminal))?;
        self.to.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_mode_size_time_and_name() {
        let attributes = AttributeConfig { uid: 0, gid: 0, file_mode: 0o755, dir_mode: 0o755 };
        let mut output = Output { to: Vec::new(), terminal: false, attributes: &attributes };
        output.line(NodeKind::File { size_bytes: 115_200 }, UnixMillis(1_700_000_000_000), b"a/b \xff").unwrap();
        output.line(NodeKind::Directory, UnixMillis(0), b"a").unwrap();
        let expected = b"-rwxr-xr-x         115200 2023-11-14 22:13:20 a/b \xff\n\
                         drwxr-xr-x              0 1970-01-01 00:00:00 a\n";
        assert_eq!(output.to, expected);
    }
}
