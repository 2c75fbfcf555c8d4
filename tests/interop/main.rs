//! The tests that need programs of other people, which `./check --all` installs: their clients and servers, a browser, guests
//! with kernels of their own.

mod bluetooth;
mod browser;
mod device_server;
mod emulated;
mod explain;
mod firmware;
#[cfg(feature = "fleet")]
mod fleet;
mod guest;
mod icmp;
mod import;
mod in_guest;
mod ip_options;
mod iperf2;
mod iperf3;
mod irtt;
mod linx_ethernet;
mod linx_tshark;
mod live_page;
mod loaded_link;
mod marks;
mod mesh;
mod mesh_page;
mod mesh_ssh;
mod modules;
mod netio;
mod package;
mod page;
mod path;
mod peers;
mod ports;
#[cfg(feature = "fleet")]
mod postgres;
mod prometheus;
mod pycampbell;
mod python;
mod reachability;
mod redirect;
mod rfc2217;
mod router;
mod ser2net;
mod services;
mod shaper;
mod shared_guests;
mod shipped_files;
mod socat;
mod stamp;
mod studies;
mod tools;
mod two_hosts;
mod uart;
mod wifi;

#[path = "../common/mod.rs"]
mod common;

use common::{client, device, echo_server, lab_logger, local_port, program, study, trials};
