//! Long messages in packets, where a rank chose that or may register no more memory.

use onesided::{FaultKind, Messages, Protocol, Tag, World};

use super::elements;
use crate::jobs::{self, ok};
use crate::limits::LIMIT;
use crate::support::DEADLINE;

/// Two ranks exchange long messages, though some may register nothing any more: those that are waited
/// for, and those that come before they are waited for. On shared memory there is no such limit.
pub(super) fn no_more_memory(world: &World, limited: &[u32]) {
    const LEN: usize = 50_000;
    let messages = Messages::new(world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    let exchange = |rendezvous| {
        messages.set_rendezvous(rendezvous);
        let sent = elements(me, LEN);
        let sends = [0, 1, 2].map(|tag| messages.send(&sent, other, Tag(tag)));
        let mut slice = vec![0; LEN];
        let early = messages.recv::<u64>(other, Tag(0));
        messages.recv_into(&mut slice, other, Tag(2)).deadline(DEADLINE).wait().unwrap();
        assert!(slice == elements(other, LEN), "{rendezvous}");
        for receive in [early, messages.recv::<u64>(other, Tag(1))] {
            assert!(receive.deadline(DEADLINE).wait().unwrap().0 == slice, "{rendezvous}");
        }
        sends.into_iter().for_each(|send| send.deadline(DEADLINE).wait().unwrap());
        let [mut out, into] = [(); 2].map(|()| messages.buffer(LEN).unwrap());
        out.write(0, &sent);
        let send = messages.send_buffer(out, other, Tag(3));
        let (into, _) = messages.recv_buffer(into, other, Tag(3)).deadline(DEADLINE).wait().unwrap();
        assert!(into.read(0..LEN) == slice, "{rendezvous}");
        drop(send.deadline(DEADLINE).wait().unwrap());
    };
    exchange(Protocol::Copy);
    world.barrier().wait().unwrap();
    let is_limited = jobs::on_cards() && limited.contains(&me);
    let mut taken = Vec::new();
    while is_limited && messages.registrations().refusals == 0 {
        taken.push(messages.buffer::<u64>(LEN).unwrap());
    }
    let before = messages.registrations().refusals;
    [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy].into_iter().for_each(exchange);
    assert!(!is_limited || messages.registrations().refusals > before);
    assert_eq!(onesided::dump().to_string().contains("memory for messages was refused"), is_limited);
    world.barrier().wait().unwrap();
    ok();
}

#[test]
fn what_cannot_be_registered_comes_all_the_same() {
    for (role, limit) in [("at one", "memlock 16777216 1"), ("at both", "memlock 16777216")] {
        let role = format!("messages: no more memory {role}");
        let ended = jobs::start_under(2, &role, (LIMIT, limit)).wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

const RULES: &str = "ONESIDED_MESSAGES_RULES";

/// The rules of the environment, or why there are none.
pub(super) fn rules(world: World) {
    let said = std::env::var(RULES).unwrap();
    match Messages::new(&world).wait() {
        Ok(messages) => {
            assert_eq!(messages.rules().to_string(), said);
            let text = messages.explain(1 - world.rank(), 100_000).unwrap().to_string();
            assert!(text.contains(&format!("({RULES})")) || jobs::on_cards(), "{text}");
            super::ring_by(&world, None);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                said.contains("rgett") && text.starts_with(&format!("{RULES}: rule 2, at character 8: no protocol: ")),
                "{text}"
            );
        }
    }
    ok();
}

/// Rank 1 has rules that there are not. The others are told, and do not wait for it.
pub(super) fn wrong_rules_of_one(world: World) {
    for _ in 0..2 {
        let error = Messages::new(&world).deadline(DEADLINE).wait().unwrap_err();
        let text = error.to_string();
        match world.rank() {
            1 => assert!(text.starts_with(&format!("{RULES}: rule 1, at character 1: no protocol: ")), "{text}"),
            _ => {
                let rank = error.fault().rank().map(|rank| rank.0);
                assert_eq!((error.kind(), rank), (FaultKind::Unsupported, Some(1)), "{text}");
                let why = format!("1 has no rules that can be read ({RULES}): its own error says why");
                assert_eq!(text, format!("make a communicator: rank {why}"));
            }
        }
        world.barrier().wait().unwrap();
    }
    ok();
}

#[test]
fn wrong_rules_of_a_process_are_told_to_all() {
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "[ $ONESIDED_RANK != 1 ] || export {RULES}=rgett; ONESIDED_IT_ROLE='messages: wrong rules of one' \
         exec {} --ignored --exact jobs::a_rank --nocapture",
        program.display()
    );
    let ended = jobs::start_program(3, "sh".as_ref(), &["-c".into(), script.into()]).wait();
    assert_eq!((ended.code, &ended.lines[..]), (0, &["ok"; 3].map(String::from)[..]), "{ended:#?}");
}

#[test]
fn a_process_begins_with_the_rules_of_its_environment() {
    let own = "host & size<=1000: eager, remote: rput, size>=5000 & progress=polling: offered, rget";
    for rules in ["eager, size>=20000: offered, rget", "eager, copy", "eager, rput", own, "eager, rgett"] {
        let ended = jobs::start_under(2, "messages: rules", (RULES, rules)).wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{rules}: {ended:#?}");
    }
}
