//! The one table from errors to errno values.
//!
//! EIO stands where nothing better fits. Never EAGAIN: Python's buffered reader takes it for the end of the data.

use fuser::Errno;

use crate::namespace::ReadDirError;
use crate::read::ReadError;
use crate::store::StoreErrorKind;

/// What a failed read answers.
pub(super) fn of_read(error: &ReadError) -> Errno {
    match error {
        ReadError::IsADirectory => Errno::EISDIR,
        ReadError::UnknownNode | ReadError::Stale => Errno::ESTALE,
        ReadError::Store(error) => of_store(error.kind()),
        ReadError::Snapshot(_) | ReadError::Abandoned => Errno::EIO,
    }
}

/// What a directory that cannot be read answers.
pub(super) fn of_read_dir(error: &ReadDirError) -> Errno {
    match error {
        ReadDirError::NotADirectory => Errno::ENOTDIR,
        ReadDirError::Damaged(_) => Errno::EIO,
    }
}

fn of_store(kind: &StoreErrorKind) -> Errno {
    use StoreErrorKind as K;
    match kind {
        K::NotFound | K::Changed => Errno::ESTALE,
        K::AccessDenied | K::Archived | K::Credentials | K::ExpiredCredentials => Errno::EACCES,
        K::NoSuchBucket
        | K::ClockSkew(_)
        | K::WrongRegion(_)
        | K::Throttled(_)
        | K::NoConnection
        | K::Unavailable
        | K::Interrupted
        | K::BadResponse
        | K::InvalidRequest => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_denials_and_changes_are_anything_but_eio() {
        assert_eq!(of_store(&StoreErrorKind::AccessDenied).code(), libc::EACCES);
        assert_eq!(of_store(&StoreErrorKind::Archived).code(), libc::EACCES);
        assert_eq!(of_store(&StoreErrorKind::Changed).code(), libc::ESTALE);
        assert_eq!(of_store(&StoreErrorKind::Throttled(None)).code(), libc::EIO);
        assert_eq!(of_read(&ReadError::Stale).code(), libc::ESTALE);
        assert_eq!(of_read(&ReadError::Abandoned).code(), libc::EIO);
    }
}
