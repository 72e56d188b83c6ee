//! Windows and messages between two ranks of one process: `cargo bench --bench windows`. For
//! comparing versions of the code; `onesided bench locks` compares with the limits of the machine.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use onesided::{Op, Window, World};
use onesided_fabric::{Fabric, Transport, block_on};
use onesided_remote_memory::{Patience, Rank};

const LARGEST: usize = 4 << 20;

/// The benchmarks run on rank 0 of two, while rank 1 sleeps.
fn main() -> onesided::Result<()> {
    let ranks = onesided::fabric::threads(2, |world| {
        let (bytes, words) = (Window::allocate(&world, LARGEST).wait()?, Window::allocate(&world, 8).wait()?);
        if world.rank() == 0 {
            let (warm_up, measure) = (Duration::from_millis(200), Duration::from_secs(1));
            let mut criterion =
                Criterion::default().warm_up_time(warm_up).measurement_time(measure).configure_from_args();
            operations(&mut criterion, &world, &words);
            copies(&mut criterion, &bytes);
            criterion.final_summary();
        }
        bytes.close().wait()?;
        words.close().wait()?;
        Ok(())
    })?;
    ranks.into_iter().collect()
}

fn operations(criterion: &mut Criterion, world: &World, window: &Window<u64>) {
    criterion.bench_function("exclusive lock + unlock", |b| {
        b.iter(|| window.lock_exclusive(1).wait().unwrap().unlock().wait().unwrap());
    });
    criterion.bench_function("shared lock + unlock", |b| {
        b.iter(|| window.lock_shared(1).wait().unwrap().unlock().wait().unwrap());
    });
    fused(criterion, window);
    let epoch = window.lock_exclusive(1).wait().unwrap();
    criterion.bench_function("fetch_and_op", |b| b.iter(|| epoch.fetch_and_op(0, 1, Op::Sum).wait().unwrap()));
    criterion.bench_function("accumulate a sum", |b| b.iter(|| epoch.accumulate(0, &[1], Op::Sum).wait().unwrap()));
    criterion.bench_function("accumulate a maximum", |b| {
        let mut operand = 0;
        b.iter(|| {
            operand += 1;
            epoch.accumulate(1, &[operand], Op::Max).wait().unwrap();
        });
    });
    criterion.bench_function("get_accumulate", |b| {
        let mut before = [0];
        b.iter(|| epoch.get_accumulate(0, &[1], &mut before, Op::Sum).wait().unwrap());
    });
    let (me, mut packets) = (Rank(world.rank()), world.fabric().transport().unwrap());
    criterion.bench_function("packet to itself, 8 B", |b| {
        b.iter(|| {
            block_on(world.fabric(), packets.send(me, &[7; 8])).unwrap();
            block_on(world.fabric(), packets.recv(Patience::on(me))).unwrap()
        });
    });
    epoch.unlock().wait().unwrap();
}

/// Lock, operation and unlock, separately and in one call: how long the caller waits. What is still
/// in flight then is waited for outside of the measured time, unless operations complete at post.
fn fused(criterion: &mut Criterion, window: &Window<u64>) {
    let home = window.locked(1);
    let immediate = window.world().fabric().capabilities().completes_at_post;
    let mut bench = |name: &str, run: &mut dyn FnMut()| {
        criterion.bench_function(name, |b| {
            if immediate {
                return b.iter(&mut *run);
            }
            b.iter_custom(|count| {
                let mut time = Duration::ZERO;
                for _ in 0..count {
                    let begin = Instant::now();
                    run();
                    time += begin.elapsed();
                    home.flush().wait().unwrap();
                }
                time
            });
        });
    };
    let mut elements = [0; 2];
    bench("apart: lock, put, unlock", &mut || {
        let epoch = window.lock_exclusive(1).wait().unwrap();
        epoch.put(0, &[1, 2]).unwrap();
        epoch.unlock().wait().unwrap();
    });
    bench("fused: locked put", &mut || home.put(0, &[1, 2]).wait().unwrap());
    bench("apart: shared lock, get, unlock", &mut || {
        let epoch = window.lock_shared(1).wait().unwrap();
        epoch.get(0, &mut elements).wait().unwrap();
        epoch.unlock().wait().unwrap();
    });
    bench("fused: locked get", &mut || home.get(0, &mut elements).wait().unwrap());
    bench("apart: lock, get, put, unlock", &mut || {
        let epoch = window.lock_exclusive(1).wait().unwrap();
        epoch.get(0, &mut elements).wait().unwrap();
        elements[0] += 1;
        epoch.put(0, &elements).unwrap();
        epoch.unlock().wait().unwrap();
    });
    bench("fused: locked update", &mut || home.update(0, &mut elements, |elements| elements[0] += 1).wait().unwrap());
}

fn copies(criterion: &mut Criterion, window: &Window<u8>) {
    let epoch = window.lock_exclusive(1).wait().unwrap();
    let mut buffer = vec![1; LARGEST];
    for op in [Op::Sum, Op::Replace] {
        let mut group = criterion.benchmark_group(format!("4096 B, {op:?} of bytes"));
        group.throughput(Throughput::Bytes(4096));
        group.bench_function("accumulate", |b| b.iter(|| epoch.accumulate(0, &buffer[..4096], op).wait().unwrap()));
    }
    for size in [8, 64, 512, 1024, 4 << 10, 64 << 10, 1 << 20, LARGEST] {
        let mut group = criterion.benchmark_group(format!("{size} B"));
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function("put", |b| b.iter(|| epoch.put(0, &buffer[..size]).unwrap()));
        group.bench_function("get", |b| b.iter(|| epoch.get(0, &mut buffer[..size]).wait().unwrap()));
    }
    epoch.unlock().wait().unwrap();
}
