//! Parse, run, exit code.

// The system's allocator keeps what many threads have freed in per-thread arenas that grow with load and shrink late; a daemon that
// holds large buffers for seconds and then idles for hours should give memory back. mimalloc does, and stays fast with many
// threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    streamvol::cli::run(&arguments).number().into()
}
