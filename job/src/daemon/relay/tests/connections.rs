//! Lost connections.

use super::*;

/// Of two hosts, of a host and the head's, within a host, within the head's: whoever reports it.
#[test]
fn lost_connections_are_known_on_all_hosts() {
    let jobs = jobs(&[0, 1, 2, 1, 2, 0]);
    let all = |one: u32, other: u32| jobs.iter().all(|job| job.job_segment.is_lost(Rank(one), Rank(other)));
    for (reporter, one, other) in [(1, 1, 4), (2, 0, 2), (3, 1, 3), (0, 5, 0), (4, 4, 4)] {
        jobs[reporter].job_segment.lose_connection(Rank(one), Rank(other));
        eventually("it is known", || all(one, other) && all(other, one));
    }
    // Both report it at once.
    jobs[1].job_segment.lose_connection(Rank(1), Rank(2));
    jobs[2].job_segment.lose_connection(Rank(2), Rank(1));
    eventually("it is known", || all(1, 2));
    // One that was lost before, in later rounds.
    for round in [2, 4] {
        jobs[4].job_segment.lose_connection_in(round, Rank(4), Rank(1));
        let is_told = |job: &Job| job.job_segment.lost_in_rounds(Rank(1)).any(|lost| lost == (Rank(4), round));
        eventually("its round is known", || jobs.iter().all(is_told));
    }
    for job in &jobs {
        let lost = |of| job.job_segment.lost_connections(Rank(of)).map(|rank| rank.0).collect::<Vec<_>>();
        let of_each = [vec![2, 5], vec![2, 3, 4], vec![0, 1], vec![1], vec![1, 4], vec![0]];
        assert_eq!([0, 1, 2, 3, 4, 5].map(lost), of_each, "rank {}", job.rank);
        assert_eq!(job.job_segment.failures(), 0);
    }
    leave(jobs);
}

#[test]
fn a_host_may_tell_of_its_own_connections_again_and_of_one_to_itself() {
    beside(SUSPECT_SOON, |mut link, jobs| {
        for other in [1, 2, 1, 0] {
            link.say(&Said::LostConnection { one: Rank(2), other: Rank(other), round: 1 });
        }
        link.flush().unwrap();
        let lost = |job: &Job| job.job_segment.lost_connections(Rank(2)).count() == 3;
        eventually("all are known", || jobs.iter().all(lost));
        assert!(jobs.iter().all(|job| job.job_segment.liveness(Rank(2)) == Liveness::Alive));
        drop(link);
        eventually("dead", || jobs.iter().all(dead));
    });
}

/// A host tells of a loss before a departure that followed it, and no host drops a loss of a rank
/// whose departure it heard of first: what the rank left undone is to be known.
#[test]
fn a_loss_is_known_although_its_rank_has_left() {
    let (mut host, mut tables, mut head) = host_of_a_played_hub();
    let job_segment = tables.job_segment();
    job_segment.join(Rank(1)).unwrap();
    job_segment.lose_connection(Rank(0), Rank(1));
    job_segment.leave(Rank(1));
    host.turn(&mut tables);
    let said: Vec<_> = std::iter::from_fn(|| head.hear().ok().flatten()).filter(|said| *said != Said::Beat).collect();
    let (lost, left) = (
        Said::LostConnection { one: Rank(0), other: Rank(1), round: 1 },
        Said::Status { rank: Rank(1), gone: Gone::Left },
    );
    assert_eq!(said, [lost, left]);
    beside(SUSPECT_SOON, |mut link, jobs| {
        link.say(&Said::Status { rank: Rank(2), gone: Gone::Left });
        link.flush().unwrap();
        eventually("it has left", || jobs.iter().all(|job| job.job_segment.liveness(Rank(2)) == Liveness::Left));
        // As when the hosts of the two ranks report one each.
        link.say(&Said::LostConnection { one: Rank(2), other: Rank(1), round: 1 });
        link.flush().unwrap();
        eventually("it is lost", || jobs.iter().all(|job| job.job_segment.is_lost(Rank(1), Rank(2))));
    });
}

/// A host believes the head about all connections but those within the host itself, which only the
/// host can know, and repeats none.
#[test]
fn what_the_head_may_not_say_of_connections_ends_its_stream() {
    for (one, other, may) in [(0, 1, true), (1, 0, true), (0, 0, true), (1, 1, false), (0, 2, false)] {
        let (mut host, mut tables, mut head) = host_of_a_played_hub();
        head.say(&Said::LostConnection { one: Rank(one), other: Rank(other), round: 1 });
        head.flush().unwrap();
        host.turn(&mut tables);
        let job_segment = tables.job_segment();
        assert_eq!(job_segment.is_lost(Rank(one), Rank(other)), may, "{one} and {other}");
        assert_eq!(job_segment.liveness(Rank(0)), if may { Liveness::Alive } else { Liveness::Dead });
        let said: Vec<_> = std::iter::from_fn(|| head.hear().ok().flatten()).collect();
        assert!(!said.iter().any(|said| matches!(said, Said::LostConnection { .. })), "{said:?}");
    }
}
