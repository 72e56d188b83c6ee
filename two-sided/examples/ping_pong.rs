//! Half round trips, rates and bandwidth between two threads or processes.

use std::time::Instant;

use onesided_two_sided::{Messages, Tag};

fn main() {
    onesided_fabric::threads(2, |world| {
        let messages = Messages::new(&world).unwrap();
        let other = 1 - world.rank();
        for len in [1_usize, 8, 32, 64, 1024, 8192, 65536, 1 << 20, 4 << 20] {
            let data = vec![1_u8; len];
            let mut into = vec![0_u8; len];
            let rounds = if len > 100_000 { 200 } else { 20_000 };
            for _ in 0..2 {
                world.barrier().wait().unwrap();
                let begin = Instant::now();
                for _ in 0..rounds {
                    if world.rank() == 0 {
                        messages.send(&data, other, Tag(0)).wait().unwrap();
                        messages.recv_into(&mut into, other, Tag(0)).wait().unwrap();
                    } else {
                        messages.recv_into(&mut into, other, Tag(0)).wait().unwrap();
                        messages.send(&data, other, Tag(0)).wait().unwrap();
                    }
                }
                let half = begin.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0;
                if world.rank() == 0 {
                    println!("{len:>8} B {half:>10.0} ns {:>8.2} GB/s", len as f64 / half);
                }
            }
        }
    })
    .unwrap();
}
