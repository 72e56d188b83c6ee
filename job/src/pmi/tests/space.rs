//! A process manager with the commands that a job needs, which the command line's tests have, too.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Barrier, Mutex};

/// The key-value space of a job, and its barrier.
pub(crate) struct Space {
    values: Mutex<HashMap<String, String>>,
    pub(crate) barrier: Barrier,
}

impl Space {
    pub(crate) fn new(size: usize) -> Self {
        Self { values: Mutex::default(), barrier: Barrier::new(size) }
    }

    /// Serves one process until it says `finalize`, aborts or is gone.
    pub(crate) fn serve(&self, stream: UnixStream) {
        let mut writer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let field = |name: &str| {
                let mut pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).unwrap()
            };
            let answer = match &*field("cmd") {
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
                "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".to_owned(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1".to_owned(),
                "put" => {
                    assert_eq!(field("kvsname"), "kvs_1");
                    self.values.lock().unwrap().insert(field("key"), field("value"));
                    "cmd=put_result rc=0 msg=success".to_owned()
                }
                "barrier_in" => {
                    self.barrier.wait();
                    "cmd=barrier_out".to_owned()
                }
                "get" => match self.values.lock().unwrap().get(&field("key")) {
                    Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                    None => format!("cmd=get_result rc=-1 msg=key_{}_not_found value=unknown", field("key")),
                },
                "finalize" => "cmd=finalize_ack".to_owned(),
                "abort" => return, // closes
                other => panic!("{other}"),
            };
            if writeln!(writer, "{answer}").is_err() {
                return;
            }
        }
    }
}
