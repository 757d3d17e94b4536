//! (being built)
#[expect(dead_code, reason = "reached from the command line")]
mod demo;
