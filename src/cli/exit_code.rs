//! Exit codes: one table, shown by `streamvol mount --help`. Scripts and service managers depend on the numbers.

use crate::handoff::{MountError, UnmountError};
use crate::namespace::listing::ListingError;
use crate::store::{StoreError, StoreErrorKind};
use crate::worker::VolumeError;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Done.
    Done,
    /// A failure that has no code of its own.
    Unexpected,
    /// Options or arguments that cannot be meant.
    Usage,
    /// The bucket or the prefix does not exist.
    NotFound,
    /// The store denies access, or there are no usable credentials.
    Denied,
    /// The store does not answer.
    Unreachable,
    /// The mount point is missing, busy, taken, or not ours.
    Mountpoint,
    /// No FUSE device, or nobody who may mount.
    NoFuse,
    /// The store answered, but its listing cannot be used.
    Listing,
}

impl ExitCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [ExitCode; 9] = [
        ExitCode::Done,
        ExitCode::Unexpected,
        ExitCode::Usage,
        ExitCode::NotFound,
        ExitCode::Denied,
        ExitCode::Unreachable,
        ExitCode::Mountpoint,
        ExitCode::NoFuse,
        ExitCode::Listing,
    ];

    /// The number that the shell sees.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            ExitCode::Done => 0,
            ExitCode::Unexpected => 1,
            ExitCode::Usage => 2,
            ExitCode::NotFound => 3,
            ExitCode::Denied => 4,
            ExitCode::Unreachable => 5,
            ExitCode::Mountpoint => 6,
            ExitCode::NoFuse => 7,
            ExitCode::Listing => 8,
        }
    }

    /// The code with that number; one we do not have is unexpected.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(ExitCode::Unexpected)
    }

    fn meaning(self) -> &'static str {
        match self {
            ExitCode::Done => "done; after a signal, unmounted in good order",
            ExitCode::Unexpected => "unexpected failure, or stopped before the mount was ready",
            ExitCode::Usage => "wrong options or arguments",
            ExitCode::NotFound => "no such bucket, or nothing below the prefix",
            ExitCode::Denied => "access denied, or no usable credentials",
            ExitCode::Unreachable => "the store does not answer",
            ExitCode::Mountpoint => "the mount point is missing, busy or taken, or not mounted",
            ExitCode::NoFuse => "no /dev/fuse, or not allowed to mount",
            ExitCode::Listing => "the bucket cannot be listed",
        }
    }

    /// The table, for help.
    #[must_use]
    pub fn table() -> String {
        let lines = Self::ALL.map(|code| format!("  {}  {}", code.number(), code.meaning()));
        format!("Exit codes:\n{}", lines.join("\n"))
    }
}

impl From<&StoreError> for ExitCode {
    fn from(error: &StoreError) -> Self {
        use StoreErrorKind as K;
        match error.kind() {
            K::NotFound | K::NoSuchBucket => ExitCode::NotFound,
            K::AccessDenied | K::Archived | K::Credentials | K::ExpiredCredentials | K::ClockSkew(_) => {
                ExitCode::Denied
            }
            K::NoConnection | K::Unavailable | K::Throttled(_) | K::WrongRegion(_) => ExitCode::Unreachable,
            K::Changed | K::Interrupted | K::BadResponse | K::InvalidRequest => ExitCode::Listing,
        }
    }
}

impl From<&VolumeError> for ExitCode {
    fn from(error: &VolumeError) -> Self {
        match error {
            VolumeError::Config(_) => ExitCode::Usage,
            VolumeError::Store { error, .. }
            | VolumeError::Listing { error: ListingError::Store { source: error, .. }, .. } => error.into(),
            VolumeError::PrefixIsObject { .. } | VolumeError::Empty(_) => ExitCode::NotFound,
            VolumeError::Listing { .. } | VolumeError::Snapshot(_) => ExitCode::Listing,
            VolumeError::Mount(error) => error.into(),
            VolumeError::Answer(_) => ExitCode::Mountpoint,
            VolumeError::Unmount(error) => error.into(),
            VolumeError::Session(_) => ExitCode::Unexpected,
        }
    }
}

impl From<&MountError> for ExitCode {
    fn from(error: &MountError) -> Self {
        match error {
            MountError::NoDevice | MountError::DeviceDenied(_) | MountError::NoHelper | MountError::AllowOther => {
                ExitCode::NoFuse
            }
            MountError::MountTable(_) => ExitCode::Unexpected,
            MountError::Stale(error) => error.into(),
            _ => ExitCode::Mountpoint,
        }
    }
}

impl From<&UnmountError> for ExitCode {
    fn from(error: &UnmountError) -> Self {
        match error {
            UnmountError::NotPermitted(_) => ExitCode::NoFuse,
            UnmountError::MountTable(_) => ExitCode::Unexpected,
            _ => ExitCode::Mountpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectKey;

    #[test]
    fn numbers_lead_back_to_their_codes() {
        for (index, code) in ExitCode::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), index);
            assert_eq!(ExitCode::from_number(code.number()), code);
        }
        assert_eq!(ExitCode::from_number(77), ExitCode::Unexpected);
    }

    #[test]
    fn the_table_has_a_line_for_every_code() {
        let table = ExitCode::table();
        assert_eq!(table.lines().count(), 1 + ExitCode::ALL.len());
        assert!(table.contains("\n  3  no such bucket, or nothing below the prefix\n"), "{table}");
    }

    #[test]
    fn store_errors_have_the_code_of_what_can_be_done() {
        for (kind, code) in [
            (StoreErrorKind::NoSuchBucket, ExitCode::NotFound),
            (StoreErrorKind::AccessDenied, ExitCode::Denied),
            (StoreErrorKind::Credentials, ExitCode::Denied),
            (StoreErrorKind::NoConnection, ExitCode::Unreachable),
            (StoreErrorKind::Unavailable, ExitCode::Unreachable),
            (StoreErrorKind::BadResponse, ExitCode::Listing),
        ] {
            let error = StoreError::new(kind, "list", &ObjectKey::default(), "no");
            assert_eq!(ExitCode::from(&error), code);
        }
    }

    #[test]
    fn a_volume_that_does_not_start_has_the_code_of_its_cause() {
        let denied = || StoreError::new(StoreErrorKind::AccessDenied, "list", &ObjectKey::default(), "no");
        let source_name = "s3://b".to_owned();
        let listing = ListingError::Store { prefix: ObjectKey::default(), source: denied() };
        for (error, code) in [
            (VolumeError::Listing { source_name, error: listing }, ExitCode::Denied),
            (VolumeError::Empty("s3://b".to_owned()), ExitCode::NotFound),
            (VolumeError::Mount(MountError::Missing("/mnt".into())), ExitCode::Mountpoint),
            (VolumeError::Mount(MountError::NoDevice), ExitCode::NoFuse),
            (VolumeError::Mount(MountError::Stale(UnmountError::NotPermitted("/mnt".into()))), ExitCode::NoFuse),
        ] {
            assert_eq!(ExitCode::from(&error), code, "{error}");
        }
    }

    #[test]
    fn unmounting_what_is_not_mounted_is_a_matter_of_the_mount_point() {
        assert_eq!(ExitCode::from(&UnmountError::NotMounted("/mnt".into())), ExitCode::Mountpoint);
        assert_eq!(ExitCode::from(&UnmountError::NotPermitted("/mnt".into())), ExitCode::NoFuse);
    }
}
