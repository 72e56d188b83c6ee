//! Figure 3: each origin at a window of its own, served by one thread of the target or by several.

use onesided_fabric::ServerThread;

use super::{DEDICATED, DEDICATED_EACH, DESIGNS, EVENT, EVENT_EACH, FLAT, Lab, claim, flat, grows, micros};
use crate::experiment::{Lock, Turns};
use crate::failure::Failure;
use crate::reproduce::figure::{Claim, Figure, Series};

/// The testbed where the server threads of a rank share a progress engine.
fn locked(lab: &Lab) -> Result<Lab, Failure> {
    lab.with("locked-progress", 1.0)
}

fn curve(lab: &Lab, lock: Lock, name: String) -> Result<Series, Failure> {
    lab.by_origins(name, |origins| Ok(micros(lab.lock(lock).contend(origins, true, Turns::OnAverage)?.nanos)))
}

/// The part of the time of one thread that several save, where they save most, and the number of
/// origins there.
fn gain(one: &Series, each: &Series) -> (f64, f64) {
    let saved = one.points.iter().zip(&each.points).map(|(one, each)| (1.0 - each.1 / one.1, one.0));
    saved.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((f64::NAN, f64::NAN))
}

/// Whether several threads gain nothing at any number of origins; the curves are of one thread and
/// of one for each window.
fn gains_nothing([dedicated, event]: [[&Series; 2]; 2]) -> (bool, String) {
    let gains = [dedicated, event].map(|[one, each]| gain(one, each));
    let [last, _] = dedicated.map(|series| series.points.last().map_or(f64::NAN, |point| point.0));
    let (most, at) = if gains[0].0 > gains[1].0 { gains[0] } else { gains[1] };
    let saved = match most > 0.0 {
        true => format!("{at} origins save most, {:.1} %", 100.0 * most),
        false => "no number of origins saves any".into(),
    };
    let evidence = format!(
        "{last} origins: dedicated {:.2} us with one thread, {:.2} with one for each window; event-driven {:.2} and \
         {:.2}; {saved}",
        dedicated[0].last(),
        dedicated[1].last(),
        event[0].last(),
        event[1].last(),
    );
    (most <= FLAT, evidence)
}

pub(super) fn figure(lab: &Lab) -> Result<Figure, Failure> {
    let apart = locked(lab)?;
    let cores = lab.with("cores", 16.0)?;
    let mut series = Vec::new();
    for lock in DESIGNS {
        series.push(curve(lab, lock, lock.name())?);
    }
    for lock in [DEDICATED_EACH, EVENT_EACH] {
        series.push(curve(&apart, lock, format!("{}, locked progress", lock.name()))?);
    }
    series.push(curve(lab, EVENT_EACH, EVENT_EACH.name())?);
    for lock in [DEDICATED, DEDICATED_EACH] {
        series.push(curve(&cores, lock, format!("{}, 16 processors", lock.name()))?);
    }
    let [dedicated, event, test_and_set, mcs, dedicated_locked, event_locked, event_each, few, many] = &series[..]
    else {
        return Err("nine curves".into());
    };
    let grown = grows("the dedicated thread's time increases with the origins", dedicated);
    let slower = lab.ablate(
        !grown.holds,
        ("progress", 2000.0),
        "a shipped server, which takes no messages apart, is not busy with seven origins",
        |lab| {
            let grown = grows("", &curve(lab, DEDICATED, String::new())?);
            Ok((grown.holds, grown.evidence))
        },
    )?;
    let (no_gain, evidence) = gains_nothing([[dedicated, dedicated_locked], [event, event_locked]]);
    let irregular = lab.ablate(
        !no_gain,
        ("jitter", 2000.0),
        "the requests of a few origins in lockstep never meet at the mutex, while one thread has them wait",
        |lab| {
            let both = |one, each| {
                Ok::<_, Failure>([curve(lab, one, String::new())?, curve(&locked(lab)?, each, String::new())?])
            };
            let [dedicated, event] = [both(DEDICATED, DEDICATED_EACH)?, both(EVENT, EVENT_EACH)?];
            Ok(gains_nothing([dedicated.each_ref(), event.each_ref()]))
        },
    )?;
    let claims = vec![
        flat("test-and-set does not change", test_and_set),
        flat("MCS does not change", mcs),
        Claim { ablation: slower, ..grown },
        grows("the event-driven thread's time increases with the origins", event),
        Claim {
            ablation: irregular,
            ..claim("several threads gain nothing behind one locked progress engine", no_gain, evidence)
        },
    ];
    let at_most = |lab: &Lab, lock| {
        Ok::<_, Failure>(micros(lab.lock(lock).contend(lab.most_origins(), true, Turns::OnAverage)?.nanos))
    };
    let free = apart.with("hand-over", 0.0)?;
    let over_messages = |thread| {
        let (one, each) = (Lock::OverMessages(thread, false), Lock::OverMessages(thread, true));
        let (first, last) = (curve(&apart, one, String::new())?, at_most(&apart, each)?);
        Ok::<_, Failure>(format!(
            "{}: {:.2} to {:.2} us with one thread, to {last:.2} with one for each lock behind the engine",
            one.name(),
            first.first(),
            first.last(),
        ))
    };
    let notes = vec![
        format!(
            "the engine's mutex is handed over in {} ns; in 0 ns, {} origins take {:.2} us with dedicated threads, {:.2} \
             with event-driven ones",
            lab.profile.number("hand-over").unwrap_or(f64::NAN),
            lab.most_origins(),
            at_most(&free, DEDICATED_EACH)?,
            at_most(&free, EVENT_EACH)?,
        ),
        over_messages(ServerThread::Polls)?,
        over_messages(ServerThread::Sleeps)?,
        format!(
            "without that engine, {} origins: event-driven {:.2} us with one thread, {:.2} with one for each window",
            lab.most_origins(),
            event.last(),
            event_each.last(),
        ),
        format!(
            "with 16 processors: dedicated {:.2} us with one thread, {:.2} with one for each",
            few.last(),
            many.last()
        ),
    ];
    let drawn = [&DESIGNS[..], &[EVENT_EACH]].concat();
    let others = lab.others(&drawn, |lock| Ok(curve(lab, lock, String::new())?.points))?;
    series.extend(others);
    let value = "us of a lock and unlock, each origin with a window of its own";
    Ok(Figure { notes, ..Figure::new(["jiang-2004-3", "Concurrency", value, "origins"], series, claims) })
}
