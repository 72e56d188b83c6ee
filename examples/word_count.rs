//! Counts the words of files, in a hash table that all ranks share.
//!
//! ```sh
//! cargo run --example word_count README.md                     # one rank
//! cargo run --example word_count -- --threads 4 *.md           # four threads as ranks
//! cargo build --example word_count
//! onesided run -n 4 -- target/debug/examples/word_count *.md   # four processes
//! ```
//!
//! A word is a run of ASCII letters, upper or lower case; all other bytes separate words. Rank 0
//! prints count and word, most frequent first, then in alphabetical order.
//!
//! Each rank reads a part of every file and counts its words in its own memory first, because one
//! remote operation per *different* word is cheaper than one per word. Then the ranks exchange
//! their numbers, allocate a table that is large enough for all of them, and merge; each takes the
//! locks of the table one after another.
#![allow(clippy::print_stderr)] // a program's purpose

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;

use bytemuck::{Pod, Zeroable};
use onesided::{Access, Any, Window, World};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Words = HashMap<Vec<u8>, u64>;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match &args[..] {
        [] => Err("usage: word_count [--threads N] FILE...".into()),
        [option, ranks, files @ ..] if option == "--threads" => in_threads(ranks, files),
        files => in_job(files),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("word_count: {error}");
            ExitCode::FAILURE
        }
    }
}

/// As a rank of the job that started this process, or as a world of one.
fn in_job(files: &[OsString]) -> Result<()> {
    run(&World::init()?, files)
}

fn in_threads(ranks: &OsStr, files: &[OsString]) -> Result<()> {
    let ranks = ranks.to_str().and_then(|ranks| ranks.parse().ok()).ok_or("--threads takes a number")?;
    onesided::fabric::threads(ranks, |world| run(&world, files))?.into_iter().collect()
}

/// The program of every rank.
fn run(world: &World, files: &[OsString]) -> Result<()> {
    let read = read_part_of_all(files, world.rank(), world.size());
    let counted = merge(world, read)?;
    // No rank waits for rank 0 any more.
    if world.rank() == 0 { print(counted) } else { Ok(()) }
}

/// The words of a rank's part of every file.
fn read_part_of_all(files: &[OsString], rank: u32, size: u32) -> Result<Words> {
    let mut words = Words::new();
    for path in files.iter().map(Path::new) {
        let read = File::open(path).and_then(|file| read_part(file, rank, size, &mut words));
        read.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(words)
}

/// A word belongs to the part in which it begins, so parts may end inside words.
fn read_part(mut file: File, rank: u32, size: u32, words: &mut Words) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file, so ranks cannot read parts of it"));
    }
    let cut = |rank: u32| (u128::from(metadata.len()) * u128::from(rank) / u128::from(size)) as u64;
    let (start, end) = (cut(rank), cut(rank + 1));
    // The byte before `start` shows whether a word begins there.
    let first = start.saturating_sub(1);
    file.seek(SeekFrom::Start(first))?;
    let mut ours = start == 0;
    let mut word = Vec::new();
    for (at, byte) in (first..).zip(BufReader::new(file).bytes()) {
        if word.is_empty() && at >= end {
            break;
        }
        match byte? {
            byte if !byte.is_ascii_alphabetic() => {
                ours = true;
                count(&mut word, words);
            }
            byte if ours => word.push(byte.to_ascii_lowercase()),
            _ => {} // the rest of a word of the previous rank
        }
    }
    count(&mut word, words);
    Ok(())
}

fn count(word: &mut Vec<u8>, words: &mut Words) {
    if !word.is_empty() {
        *words.entry(std::mem::take(word)).or_default() += 1;
    }
}

/// An entry of the shared table: how often a word occurred (0: the entry is free), and where the
/// word is in the text of the same rank.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Place {
    count: u64,
    start: u64,
    len: u64,
}

// What each rank has to know of its share of the table: elements of a window.
/// An upper bound of the number of words.
const WORDS: usize = 0;
/// The number of letters in them.
const LETTERS: usize = 1;
/// The number of letters of text in use.
const TAKEN: usize = 2;
/// The number of ranks that could not read their files.
const FAILED: usize = 3;

/// Merges what the ranks have read. Rank 0 gets the sums, the others nothing.
///
/// Every rank takes part in every collective call (allocate, barrier, close), even if it could not
/// read its files: the others would wait for it.
fn merge(world: &World, read: Result<Words>) -> Result<Vec<(u64, Vec<u8>)>> {
    let size = world.size();
    // A word's hash selects the rank, and then the entry in that rank's table.
    let mut batches = vec![Vec::new(); size as usize];
    for (word, count) in read.iter().flatten() {
        let hash = hash(word);
        batches[(hash % u64::from(size)) as usize].push((hash / u64::from(size), word, *count));
    }

    // The sums need no exclusive lock: they are atomic operations.
    let sizes = Window::<u64>::builder().name("sizes").allocate(world, 4).wait()?;
    let all_sizes = sizes.lock_all().wait()?;
    for (owner, batch) in (0..size).zip(&batches) {
        let letters = batch.iter().map(|(_, word, _)| word.len() as u64).sum();
        all_sizes.at(owner).wait()?.fetch_add(WORDS, batch.len() as u64).wait()?;
        all_sizes.at(owner).wait()?.fetch_add(LETTERS, letters).wait()?;
        all_sizes.at(owner).wait()?.fetch_add(FAILED, u64::from(read.is_err())).wait()?;
    }
    world.barrier().wait()?;
    let mine = sizes.local().read(0..4);
    if mine[FAILED] != 0 {
        read?;
        return Err("another rank could not read its part".into());
    }

    // At most half full, so that probes are few and a free entry always exists.
    let places = 2 * mine[WORDS] as usize + 1;
    let table = Window::<Place>::builder().name("table").uneven().allocate(world, places).wait()?;
    let text = Window::<u8>::builder().name("text").uneven().allocate(world, mine[LETTERS] as usize).wait()?;
    // The owner of a rank's table lock also has exclusive access to that rank's text.
    let all_text = text.lock_all().wait()?;
    for turn in 0..size {
        // Each rank begins elsewhere, so that they do not all wait for the same lock.
        let owner = (world.rank() + turn) % size;
        let lock = table.lock_exclusive(owner).wait()?;
        let part = Part { table: &lock, text: all_text.at(owner).wait()?, sizes: all_sizes.at(owner).wait()? };
        for (hash, word, count) in &batches[owner as usize] {
            part.add(*hash, word, *count)?;
        }
        part.text.flush().wait()?; // the unlock completes the puts to the table, not those to the text
        lock.unlock().wait()?;
    }
    world.barrier().wait()?;

    let mut counted = Vec::new();
    if world.rank() == 0 {
        for owner in 0..size {
            let lock = table.lock_shared(owner).wait()?;
            let part = Part { table: &lock, text: all_text.at(owner).wait()?, sizes: all_sizes.at(owner).wait()? };
            part.read_into(&mut counted)?;
        }
    }
    all_text.unlock_all().wait()?;
    all_sizes.unlock_all().wait()?;
    table.close().wait()?;
    text.close().wait()?;
    sizes.close().wait()?;
    Ok(counted)
}

/// A hash that is the same in every process.
fn hash(word: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(word);
    hasher.finish()
}

/// One rank's share of the table while it is locked.
struct Part<'w> {
    table: &'w Access<'w, Place, Any>,
    text: &'w Access<'w, u8, Any>,
    sizes: &'w Access<'w, u64, Any>,
}

impl Part<'_> {
    /// Adds to a word's count; open addressing with linear probing.
    fn add(&self, hash: u64, word: &[u8], count: u64) -> Result<()> {
        let mut index = (hash % self.table.len() as u64) as usize;
        let mut place = loop {
            let mut place = [Place::zeroed()];
            self.table.get(index, &mut place).wait()?;
            let [place] = place;
            if place.count == 0 {
                break self.write(word)?;
            }
            if self.word_at(place)? == word {
                break place;
            }
            index = (index + 1) % self.table.len();
        };
        place.count += count;
        self.table.put(index, &[place])?;
        Ok(())
    }

    fn write(&self, word: &[u8]) -> Result<Place> {
        let len = word.len() as u64;
        let start = self.sizes.fetch_add(TAKEN, len).wait()?;
        self.text.put(start as usize, word)?;
        Ok(Place { count: 0, start, len })
    }

    fn word_at(&self, place: Place) -> Result<Vec<u8>> {
        let mut word = vec![0; place.len as usize];
        self.text.get(place.start as usize, &mut word).wait()?;
        Ok(word)
    }

    /// All counts and words.
    fn read_into(&self, counted: &mut Vec<(u64, Vec<u8>)>) -> Result<()> {
        let mut places = vec![Place::zeroed(); self.table.len()];
        self.table.get(0, &mut places).wait()?;
        for place in places.into_iter().filter(|place| place.count > 0) {
            counted.push((place.count, self.word_at(place)?));
        }
        Ok(())
    }
}

fn print(mut counted: Vec<(u64, Vec<u8>)>) -> Result<()> {
    counted.sort_unstable_by(|(count, word), (other, next)| other.cmp(count).then_with(|| word.cmp(next)));
    let mut out = BufWriter::new(io::stdout().lock());
    let lines = counted.iter().try_for_each(|(count, word)| {
        write!(out, "{count:>7} ")?;
        out.write_all(word)?;
        out.write_all(b"\n")
    });
    match lines.and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()), // `word_count FILE | head`
        outcome => outcome.map_err(|error| format!("write the counts: {error}").into()),
    }
}
