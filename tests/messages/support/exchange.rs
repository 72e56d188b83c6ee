//! Two ranks that send to one another by every protocol.

use onesided_fabric::Fabric;
use onesided_two_sided::{Error, Messages, Op, Protocol, Tag};

fn bytes(from: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(31).wrapping_add(from) >> 3) as u8).collect()
}

/// Both ranks send to one another at the same time.
pub(crate) async fn exchange<F: Fabric>(messages: &Messages<F>) -> Result<(), Error> {
    let me = messages.world().rank();
    let other = 1 - me;
    let (rows, mut into) = ([[me; 3]; 20], [[9; 3]; 20]);
    let receives = messages.recv_all_into(into.iter_mut().map(|row| (&mut row[..], other, Tag(0))));
    for send in messages.send_all(rows.iter().map(|row| (&row[..], other, Tag(0)))) {
        send.await?;
    }
    for receive in receives {
        receive.await?;
    }
    assert_eq!(into, [[other; 3]; 20]);
    let (rget, rput, pipeline, copy) = (Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy);
    for (by, len) in [(rget, 3_000), (rget, 20_000), (rput, 20_000), (pipeline, 150_000), (copy, 20_000)] {
        messages.set_rendezvous(by);
        let (sent, mut into) = (bytes(me, len), vec![0; len]);
        let receive = messages.recv_into(&mut into, other, Tag(1));
        let send = messages.send(&sent, other, Tag(1));
        receive.await?;
        send.await?;
        assert!(into == bytes(other, len), "{len} bytes by {by}");
    }
    messages.set_rendezvous(rget);
    let mut sums = vec![me; 5_000];
    messages.all_reduce(&mut sums, Op::Sum).await?;
    assert!(sums.iter().all(|sum| *sum == 1));
    let mut buffer = messages.buffer(5_000)?;
    buffer.write(0, &bytes(me, 5_000));
    let mine = [me];
    let (send, last) = (messages.send_buffer(buffer, other, Tag(2)), messages.send_synchronous(&mine, other, Tag(3)));
    let (received, _) = messages.recv_buffer(messages.buffer::<u8>(5_000)?, other, Tag(2)).await?;
    assert!(received.read(0..5_000) == bytes(other, 5_000));
    send.await?;
    assert_eq!(messages.recv::<u32>(other, Tag(3)).await?.0, [other]);
    last.await
}
