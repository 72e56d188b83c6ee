//! Puts and gets on memory of another process, beside the bare system calls: `cargo bench --bench lent`. Two processes; the
//! second one sleeps. Both are measured in turns, and the best turn of each counts.
#![allow(unsafe_code, clippy::print_stdout)] // the calls that are the limit, and a report

use std::ffi::{c_int, c_ulong, c_void};
use std::time::{Duration, Instant};

use fabric::bootstrap::launcher::{Launch, OnFailure};
use onesided::{Path, Window, World};

const SIZES: [usize; 6] = [8, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
const LARGEST: usize = 16 << 20;

#[repr(C)]
struct Range(*mut c_void, usize);

unsafe extern "C" {
    fn process_vm_readv(p: c_int, l: *const Range, n: c_ulong, r: *const Range, m: c_ulong, f: c_ulong) -> isize;
    fn process_vm_writev(p: c_int, l: *const Range, n: c_ulong, r: *const Range, m: c_ulong, f: c_ulong) -> isize;
}

fn main() {
    if std::env::var_os("ONESIDED_RANK").is_none() {
        let program = std::env::current_exe().unwrap().into();
        let launch = Launch {
            size: 2,
            program,
            args: Vec::new(),
            fabric: "shm".into(),
            on_failure: OnFailure::Abort,
            labels: false,
        };
        let code = launch.run(&[], &mut |event| println!("{event}")).unwrap();
        std::process::exit(code.into());
    }
    let world = World::init().unwrap();
    let window = Window::create(&world, vec![1_u8; LARGEST]).unwrap();
    let told = Window::<u64>::allocate(&world, 2).unwrap();
    let mut plain = vec![1_u8; LARGEST];
    told.local().write(0, &[std::process::id().into(), plain.as_mut_ptr() as u64]).unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        measure(&window, &told);
    }
    world.barrier().wait().unwrap();
    drop(plain);
    window.close_into().unwrap();
    told.close().unwrap();
}

fn measure(window: &Window<u8>, told: &Window<u64>) {
    let mut there = [0; 2];
    told.lock_shared(1).wait().unwrap().get(0, &mut there).wait().unwrap();
    let (pid, address) = (there[0] as c_int, there[1]);
    let mut buffer = vec![2_u8; LARGEST];
    let epoch = window.lock_exclusive(1).wait().unwrap();
    println!(
        "{:>9}  {:>12} {:>12} {:>6}  {:>12} {:>12} {:>6}",
        "bytes", "put", "bare", "ratio", "get", "bare", "ratio"
    );
    for size in SIZES {
        let ranges = (Range(buffer.as_mut_ptr().cast(), size), Range(address as *mut c_void, size));
        // SAFETY: both ranges are vectors of that length, one here and one in the other process, which does not touch it.
        let bare_put = || assert_eq!(unsafe { process_vm_writev(pid, &ranges.0, 1, &ranges.1, 1, 0) }, size as isize);
        let bare_put = best(size, bare_put);
        // SAFETY: as above.
        let bare_get = || assert_eq!(unsafe { process_vm_readv(pid, &ranges.0, 1, &ranges.1, 1, 0) }, size as isize);
        let bare_get = best(size, bare_get);
        let put = best(size, || epoch.put(0, &buffer[..size]).unwrap());
        let get = best(size, || epoch.get(0, &mut buffer[..size]).wait().unwrap());
        let rate = |time: f64| format!("{:.3} GB/s", size as f64 / time);
        let (puts, gets) = (bare_put / put, bare_get / get);
        println!(
            "{size:>9}  {:>12} {:>12} {puts:>6.2}  {:>12} {:>12} {gets:>6.2}",
            rate(put),
            rate(bare_put),
            rate(get),
            rate(bare_get)
        );
    }
    println!("path: {}", if window.paths(1).of(Path::ProcessVm) > 0 { Path::ProcessVm } else { Path::Helper });
    epoch.unlock().unwrap();
}

/// Nanoseconds a call takes in the best of some turns.
fn best(size: usize, mut call: impl FnMut()) -> f64 {
    let calls = (32 << 20) / size.max(4096);
    let turns = (0..9).map(|_| {
        let begin = Instant::now();
        (0..calls).for_each(|_| call());
        begin.elapsed()
    });
    let best = turns.min().unwrap_or(Duration::MAX);
    best.as_nanos() as f64 / calls as f64
}
