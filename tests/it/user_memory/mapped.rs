//! Windows over user mappings: anonymous ones, and of files.
#![allow(unsafe_code)] // what a user writes to create and expose a mapping

use std::ffi::c_void;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::ptr::NonNull;

use onesided::fabric::UserMemory;
use onesided::{Op, Window, WindowMemory, World};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::{all_go_well, expected_path};
use crate::jobs::{Role, ok};

pub(super) const ROLES: &[Role] = &[("user memory: mapped", mapped)];

/// Pages that are unmapped when they are dropped.
pub(crate) struct Mapping {
    pub(crate) start: NonNull<c_void>,
    len: usize,
}

// SAFETY: pages belong to no thread.
unsafe impl Send for Mapping {}
// SAFETY: nothing is reached through it.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these pages with this length, and nothing accesses them any more:
        // the code that exposes a mapping upholds this.
        unsafe { munmap(self.start.as_ptr(), self.len) }.unwrap();
    }
}

impl Mapping {
    /// Of a file, or anonymous.
    fn new(file: Option<&File>, len: usize) -> Self {
        Self::near(std::ptr::null_mut(), file, len)
    }

    /// The same at an address, if nothing is there.
    pub(crate) fn near(hint: *mut c_void, file: Option<&File>, len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let start = match file {
            // SAFETY: new pages where the kernel wants them, and where nothing is.
            Some(file) => unsafe { mmap(hint, len, access, MapFlags::SHARED, file, 0) },
            // SAFETY: as above.
            None => unsafe { mmap_anonymous(hint, len, access, MapFlags::PRIVATE) },
        };
        Self { start: NonNull::new(start.unwrap()).unwrap(), len }
    }

    pub(crate) fn into_memory(self) -> UserMemory {
        // SAFETY: as many bytes as the mapping has, which are initialised (with zeros, or what the
        // file has) and which nothing else reaches; the mapping unmaps them when it is dropped.
        unsafe { UserMemory::from_raw_parts(self.start.cast(), self.len, self) }.unwrap()
    }
}

#[test]
fn a_mapping_is_exposed_and_returned_unchanged() {
    all_go_well(2, "user memory: mapped");
}

fn mapped(world: World) {
    const LEN: usize = 3 << 12;
    let (me, next) = (world.rank(), 1 - world.rank());
    let path = std::env::temp_dir().join(format!("onesided-mapped-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap(); // it lasts as long as it is open
    file.write_all(&vec![me as u8; LEN]).unwrap();
    let memory = Mapping::new(Some(&file), LEN).into_memory();
    let window = Window::<u16>::builder().create_from(&world, memory).wait().unwrap();
    assert_eq!(window.len(next), LEN / 2);
    expected_path_of_words(&world);
    let epoch = window.lock_exclusive(next).wait().unwrap();
    let mut seen = [0; 3];
    epoch.get(LEN / 2 - 3, &mut seen).wait().unwrap();
    assert_eq!(seen, [u16::from(next as u8) * 0x101; 3]);
    epoch.put(2040, &[0x3231; 16]).unwrap(); // from one page to the next
    epoch.accumulate(1, &[5], Op::Replace).wait().unwrap();
    epoch.unlock().wait().unwrap();
    let memory = window.close_into_memory().wait().unwrap();
    assert_eq!((memory.len(), memory.bytes()[4080..4112].to_vec()), (LEN, b"12".repeat(16)));
    let mapping = memory.into_owner::<Mapping>().unwrap_or_else(|_| panic!("it has this type"));
    let mut there = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut there).unwrap();
    assert_eq!(
        (there.len(), &there[..4], &there[4078..4082]),
        (LEN, &[me as u8, me as u8, 5, 0][..], &[me as u8, me as u8, b'1', b'2'][..])
    );
    drop(mapping);

    // Two windows over anonymous pages; a mapping that is never taken back is dropped with the last
    // of them.
    let memory = WindowMemory::new(&world, Mapping::new(None, LEN).into_memory()).unwrap();
    let whole = Window::<u64>::create_over(&world, &memory, 0..LEN / 8).wait().unwrap();
    let part = Window::<u64>::create_over(&world, &memory, 100..200).wait().unwrap();
    drop(memory);
    whole.lock_shared(next).wait().unwrap().fetch_add(150, 3).wait().unwrap();
    assert_eq!(part.lock_shared(next).wait().unwrap().fetch_one(50).wait().unwrap(), 3);
    whole.close().wait().unwrap();
    part.close().wait().unwrap();
    ok();
}

/// A mapping goes the way that vectors go.
fn expected_path_of_words(world: &World) {
    let window = Window::<u64>::builder().create_from(world, Mapping::new(None, 4096).into_memory()).wait().unwrap();
    expected_path(&window, 1 - world.rank());
    window.close().wait().unwrap();
}
