//! One frame of a packet socket, with or without a descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::error::zeroed;
use crate::frame::MAX_FRAME;

/// A received packet.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) frame: Vec<u8>,
    pub(crate) descriptor: Descriptor,
}

/// The received descriptor.
#[derive(Debug)]
pub(crate) enum Descriptor {
    None,
    One(OwnedFd),
    /// More than any frame may have; they are closed.
    TooMany,
    /// One was sent, but this process has no free descriptor.
    Lost,
}

/// A packet socket, closed on exec.
pub(crate) fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The abstract address of a name: it is not in a file system.
pub(crate) fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Sends one frame, completely or not at all; never raises `SIGPIPE`.
pub(crate) fn send(socket: impl AsFd, frame: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives one frame. `None`: the other side has closed.
///
/// # Errors
/// `InvalidData` for a frame longer than [`MAX_FRAME`], `ENOMEM`, or the system's error.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Packet>> {
    let mut frame = zeroed(MAX_FRAME)?;
    // Space for one descriptor more than any frame has, so that an extra one is noticed. The system
    // closes those without space.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let into = &mut [IoSliceMut::new(&mut frame)];
        rustix::net::recvmsg(&socket, into, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten();
    let descriptor = match (descriptors.next(), descriptors.next()) {
        (None, _) if received.flags.contains(ReturnFlags::CTRUNC) => Descriptor::Lost,
        (None, _) => Descriptor::None,
        (Some(_), None) if received.flags.contains(ReturnFlags::CTRUNC) => Descriptor::TooMany,
        (Some(one), None) => Descriptor::One(one),
        (Some(_), Some(_)) => Descriptor::TooMany,
    };
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame of impossible length"));
    }
    frame.truncate(received.bytes);
    // An empty packet is indistinguishable from the end; no frame is empty.
    Ok((received.bytes > 0).then_some(Packet { frame, descriptor }))
}
