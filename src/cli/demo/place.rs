//! Where the demo is mounted: a directory that was given, or a new one that goes away again.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::super::error::CliError;

/// How many names are tried; directories of earlier demos that were killed may be in the way.
const MAX_NAMES: u32 = 100;

/// A directory to mount on. One that was made here is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    is_ours: bool,
}

impl Place {
    /// `given`, or a new directory where temporary files go.
    pub(super) fn new(given: Option<&Path>) -> Result<Self, CliError> {
        match given {
            Some(path) => Ok(Place { path: path.to_owned(), is_ours: false }),
            None => Place::made_in(&std::env::temp_dir()).map_err(CliError::system("make a directory to mount on")),
        }
    }

    fn made_in(parent: &Path) -> io::Result<Self> {
        let mut last = io::ErrorKind::AlreadyExists.into();
        for number in 0..MAX_NAMES {
            let path = parent.join(format!("streamvol-demo-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Place { path, is_ours: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_ours {
            // Only an empty directory can be removed so: if it should still be mounted, nothing happens to what it shows.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_made_goes_away_and_one_that_was_given_stays() {
        let parent = tempfile::tempdir().unwrap();
        let first = Place::made_in(parent.path()).unwrap();
        let second = Place::made_in(parent.path()).unwrap();
        assert_ne!(first.path(), second.path());
        let paths = [first.path().to_owned(), second.path().to_owned()];
        assert!(paths.iter().all(|path| path.is_dir()));
        drop((first, second));
        assert!(!paths.iter().any(|path| path.exists()));
        drop(Place::new(Some(parent.path())).unwrap());
        assert!(parent.path().is_dir());
    }

    #[test]
    fn what_is_in_a_made_directory_is_never_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::made_in(parent.path()).unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "x").unwrap();
        drop(place);
        assert!(file.is_file());
    }
}
