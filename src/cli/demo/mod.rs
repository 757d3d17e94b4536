//! `streamvol demo`: the data set it makes, the passes that read it, and the table of what happened.

mod dataset;
mod passes;
mod pictures;
mod report;
