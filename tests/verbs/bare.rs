//! The bare loops that messages are compared with.

use std::sync::mpsc::channel;

use onesided_fabric::Error;
use onesided_fabric::verbs::bare::BareCard;

use crate::support::device;

/// Both ends go on, past what is signalled and past the room of their queues.
#[test]
fn bare_loops_end() {
    let Some(_device) = device("bare_loops_end") else { return };
    let ((to_second, from_first), (to_first, from_second)) = (channel(), channel());
    let end = |is_first: bool, (to, from): (std::sync::mpsc::Sender<Vec<u8>>, std::sync::mpsc::Receiver<Vec<u8>>)| {
        let exchange = |own: &[u8]| {
            to.send(own.to_vec()).unwrap();
            Ok::<_, Error>(from.recv().unwrap())
        };
        let mut card = BareCard::new(100_000, true)?;
        card.connect(exchange)?;
        exchange(&[])?;
        card.sends(is_first, 8, 300)?;
        card.stream(is_first, 512, 64, 5)?;
        card.writes(is_first, 100_000, 70)?;
        card.reads(is_first, 100_000, 70)?;
        card.datagrams(is_first, 8, 300)
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(move || end(false, (to_first, from_first)));
        end(true, (to_second, from_second)).unwrap();
        second.join().unwrap().unwrap();
    });
}
