//! Parse, run, exit code.

// The system's allocator keeps what many threads have freed in per-thread arenas that grow with load and shrink late; a daemon that
// holds large buffers for seconds and then idles for hours should give memory back. mimalloc does, and stays fast with many
// threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // The allocator asks for huge pages, and every thread touches a little of many of them: 60 to 100 MiB of zeros beside a limit of
    // 16 MiB. Reads are as fast without. It costs memory, not correctness, where the kernel does not know the request.
    let _not_known = rustix::thread::disable_transparent_huge_pages(true);
    let arguments: Vec<_> = std::env::args_os().collect();
    streamvol::cli::run(&arguments).number().into()
}
