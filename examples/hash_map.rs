//! A hash map in the window memory of all ranks. Every rank adds to any entry by atomic operations,
//! without locks and without help of the rank that has the entry.
//!
//! ```sh
//! cargo run --example hash_map                                 # one rank
//! onesided run -n 4 -- target/debug/examples/hash_map          # four processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use onesided::{Any, LockAll, Result, Window, World};

/// The number of entries of each rank.
const ENTRIES: u64 = 2048;
/// The number of different keys. Every rank adds to each of them.
const KEYS: u64 = 500;

/// Entry `i` of a rank is two elements: the key at `2 * i`, which is 0 while the entry is free, and
/// the value behind it. A key never changes, and no entry is removed.
struct HashMap<'w> {
    ranks: LockAll<'w, u64, Any>,
    size: u64,
}

impl HashMap<'_> {
    /// The rank that has a key, and the entry at which the search for the key begins.
    fn home(&self, key: u64) -> (u32, u64) {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash % self.size) as u32, hash / self.size)
    }

    /// Adds to the value of a key. A key that is not there yet takes the first free entry.
    fn add(&self, key: u64, value: u64) -> Result<()> {
        let (rank, first) = self.home(key);
        let entries = self.ranks.at(rank).wait()?;
        for probe in 0..ENTRIES {
            let at = 2 * ((first + probe) % ENTRIES) as usize;
            // Of several ranks that find the entry free, one puts its key there.
            let found = entries.compare_and_swap(at, 0, key).wait()?;
            if found == 0 || found == key {
                entries.fetch_add(at + 1, value).wait()?;
                return Ok(());
            }
        }
        panic!("no free entry at rank {rank}")
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let (rank, first) = self.home(key);
        let entries = self.ranks.at(rank).wait()?;
        for probe in 0..ENTRIES {
            let at = 2 * ((first + probe) % ENTRIES) as usize;
            match entries.fetch_one(at).wait()? {
                0 => return Ok(None),
                found if found == key => return Ok(Some(entries.fetch_one(at + 1).wait()?)),
                _ => {} // another key
            }
        }
        Ok(None)
    }
}

fn main() -> Result<()> {
    let world = World::init()?;
    let window = Window::<u64>::allocate(&world, 2 * ENTRIES as usize).wait()?;
    let map = HashMap { ranks: window.lock_all().wait()?, size: world.size().into() };

    for key in 1..=KEYS {
        map.add(key, key)?;
    }
    world.barrier().wait()?; // every rank has added
    for key in 1..=KEYS {
        assert_eq!(map.get(key)?, Some(key * map.size));
    }
    assert_eq!(map.get(KEYS + 1)?, None);

    if world.rank() == 0 {
        println!("{} ranks added to {KEYS} keys", world.size());
    }
    drop(map); // it unlocks; close reports an error of that
    window.close().wait()?;
    Ok(())
}
