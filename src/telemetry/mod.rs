//! What the program says about itself. It only listens: nothing here can fail or slow an I/O.

pub mod log;
