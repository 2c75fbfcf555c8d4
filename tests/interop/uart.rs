//! The lab UART and programs of other people: pyserial and socat.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use linkgauge::lab::uart::{LabUarts, PortWiring, UartOptions};

use crate::client::linkgauge;
use crate::program::{Running, wait_until};
use crate::tools::{interpreter, passes};

#[test]
fn pyserial_finds_a_serial_port() {
    let uarts = LabUarts::start(&UartOptions::default()).unwrap();
    let paths = uarts.paths();
    passes(
        r#"
import serial, sys, time
every = bytes(range(256))
for baud, parity, stop, bits in [(9600, "N", 1, 10), (115200, "N", 2, 11), (38400, "O", 1, 11), (250000, "N", 1, 10)]:
    with serial.Serial(sys.argv[1], baud, parity=parity, stopbits=stop, timeout=20) as port:
        began = time.monotonic()
        port.write(every)
        got = port.read(256)
        took = time.monotonic() - began
        assert got == every, (baud, got)
        assert took >= 256 * bits / baud, (baud, took)
with serial.Serial(sys.argv[1], 9600, bytesize=7, parity="E", timeout=20, rtscts=True) as port:
    port.write(b"seven")
    assert port.read(5) == b"seven"
with serial.Serial(sys.argv[1], 9600, timeout=20, rtscts=True) as port:
    # What was sent and not read is gone; what was not sent yet as well.
    port.write(b"x" * 500)
    time.sleep(0.05)
    port.reset_output_buffer()
    time.sleep(0.1)
    port.reset_input_buffer()
    port.timeout = 0.3
    assert port.read(1) == b""
    port.write(b"y")
    assert port.read(1) == b"y"
"#,
        &[paths[0].to_str().unwrap()],
    );
}

#[test]
fn socat_talks_across_a_null_modem() {
    let uarts =
        LabUarts::start(&UartOptions { wiring: PortWiring::NullModem, ..UartOptions::default() }).unwrap();
    let paths = uarts.paths();
    let socat = |path: &Path| {
        Command::new("/usr/bin/socat")
            .args(["-T", "10", "STDIO", &format!("{},raw,echo=0,b115200", path.display())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map(Running)
            .expect("socat is needed for this test: apt-get install socat")
    };
    let (mut one, mut other) = (socat(&paths[0]), socat(&paths[1]));
    // Both have set their line.
    for path in &paths {
        let terminal = File::open(path).unwrap();
        wait_until("socat", || {
            (linkgauge::system::line_settings(&terminal).unwrap().baud == 115_200).then_some(())
        });
    }
    let says = |from: &mut Running, to: &mut Running, words: &[u8]| {
        from.0.stdin.as_mut().unwrap().write_all(words).unwrap();
        let mut got = vec![0; words.len()];
        to.0.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
        assert_eq!(got, words);
    };
    says(&mut one, &mut other, b"who is there?");
    says(&mut other, &mut one, b"another program");
}

/// Ten holding registers on a serial line. The server ends with its input.
const MODBUS: &str = r#"
import os, sys, threading
from pymodbus import FramerType
from pymodbus.server import StartSerialServer
from pymodbus.simulator import DataType, SimData, SimDevice

def watch():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=watch, daemon=True).start()
registers = SimData(0, values=[0x1234] * 10, datatype=DataType.REGISTERS)
StartSerialServer(SimDevice(17, simdata=[registers]), port=sys.argv[1], framer=FramerType.RTU, baudrate=19200)
"#;

#[test]
fn modbus_rtu_of_pymodbus_replies_on_a_serial_line() {
    let uarts =
        LabUarts::start(&UartOptions { wiring: PortWiring::NullModem, ..UartOptions::default() }).unwrap();
    let paths = uarts.paths();
    let child = Command::new(interpreter())
        .args(["-c", MODBUS, paths[1].to_str().unwrap()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let _server = Running(child);
    let terminal = File::open(&paths[1]).unwrap();
    wait_until("pymodbus", || {
        (linkgauge::system::line_settings(&terminal).unwrap().baud == 19_200).then_some(())
    });
    let url = format!("serial://{}?baud=19200", paths[0].display());
    let ask = |options: &str| {
        linkgauge(&format!(
            "latency {url} --protocol modbus --unit 17 -n 40 --warm-up 2 --timeout 5s {options}"
        ))
    };
    for options in ["", "--function 8", "--registers 10"] {
        let outcome = ask(options);
        assert_eq!(outcome.count("corrupt_messages"), 0, "{options}");
        outcome.got_all_replies(40);
    }
    let outcome = ask("--register 99");
    assert_eq!(outcome.case()["effective"]["modbus_exceptions"], serde_json::json!({ "2": 42 }));
    outcome.got_all_replies(40);
}
