//! A remote shell for tests: a daemon that runs any command for any client, and a client. Both are
//! roles of this test binary. It replaces ssh in tests of the network between two hosts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// The port of the daemon.
pub(crate) const PORT: u16 = 7514;

/// Runs a line of shell for each connection, with the connection as its input and output, until it
/// is killed.
pub(crate) fn serve() -> i32 {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        std::thread::spawn(move || {
            // Byte by byte, because the bytes after the line are the command's input.
            let mut line = Vec::new();
            let mut byte = [0];
            while (&stream).read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
                line.push(byte[0]);
            }
            let line = String::from_utf8(line).unwrap();
            let (input, output) = (OwnedFd::from(stream.try_clone().unwrap()), OwnedFd::from(stream));
            let mut child = Command::new("sh")
                .args(["-c", &line])
                .stdin(Stdio::from(input))
                .stdout(Stdio::from(output))
                .spawn()
                .unwrap();
            child.wait().unwrap();
        });
    }
    0
}

/// Sends the command line in `ONESIDED_TEST_LINE` to the host in `ONESIDED_TEST_HOST`; then
/// forwards bytes in both directions.
pub(crate) fn call() -> i32 {
    let variable = |name: &str| std::env::var(name).unwrap();
    let mut stream = TcpStream::connect((&*variable("ONESIDED_TEST_HOST"), PORT)).unwrap();
    writeln!(stream, "{}", variable("ONESIDED_TEST_LINE")).unwrap();
    let mut up = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut up);
        let _ = up.shutdown(std::net::Shutdown::Write);
    });
    // Standard error is the connection's output, because the test harness writes to standard
    // output.
    let mut down = std::io::stderr();
    let mut buffer = [0; 8192];
    loop {
        match stream.read(&mut buffer) {
            Ok(read @ 1..) if down.write_all(&buffer[..read]).is_ok() => {}
            _ => return 0,
        }
    }
}
