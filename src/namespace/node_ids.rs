//! Node ids and the rows they stand for.
//!
//! Always true: an id is given to one object version and never to another. It is not a row: it is a base and a row, and each
//! image of a mount gets the ids after those of the image before, so that a file keeps its identity when rows move. Ids of
//! nodes that replace others during the mount are taken from a range of their own ([`FIRST_REPLACEMENT_ID`]).

use crate::model::NodeId;

/// Id of the first entry. Below it are the root (1) and the cookies of `.` (1) and `..` (2); the rest is kept free.
pub const FIRST_ENTRY_ID: u64 = 16;

/// Id of the first node that replaces another; no image has this many rows.
pub(super) const FIRST_REPLACEMENT_ID: u64 = 1 << 62;

/// The ids of one image's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeIds {
    base: u64,
    rows: u64,
}

impl NodeIds {
    /// Ids for an image of so many rows, beginning with `base`.
    pub(super) fn new(base: u64, rows: u64) -> Self {
        debug_assert!(base >= FIRST_ENTRY_ID && rows <= FIRST_REPLACEMENT_ID - base);
        NodeIds { base, rows }
    }

    /// The id of a row of the image.
    pub(super) fn id(self, row: u64) -> NodeId {
        NodeId(self.base + row)
    }

    /// The row an id stands for; `None` for ids of others.
    pub(super) fn row(self, id: NodeId) -> Option<u64> {
        id.0.checked_sub(self.base).filter(|&row| row < self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stands_for_its_row_and_for_nothing_outside_the_image() {
        let ids = NodeIds::new(FIRST_ENTRY_ID, 3);
        for row in 0..3 {
            assert_eq!(ids.row(ids.id(row)), Some(row));
        }
        for stranger in [0, 1, 2, 15, 19, FIRST_REPLACEMENT_ID, u64::MAX] {
            assert_eq!(ids.row(NodeId(stranger)), None, "{stranger}");
        }
    }
}
