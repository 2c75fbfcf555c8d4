# Runs one command as root in a guest with its own kernel, which is created for it and deleted afterwards.
#
# usage: CACHE MODULES TOOLS PROGRAM SECONDS VIRTUAL OWN OTHER COMMAND [ARGUMENT...]
# Lists are comma separated and may be empty. OWN and OTHER are sockets between which Ethernet frames pass, or empty.
#
# The guest is an initramfs of busybox, the modules, and the requested programs with their libraries. Its output and the
# status of the command leave through serial ports. Nothing of the host is visible inside.
set -u
fail() { echo "error: $*" >&2; exit 125; }
cache=$1 modules=${2//,/ } tools=${3//,/ } program=$4 seconds=$5 virtual=$6 own=$7 other=$8
shift 8
PATH=$PATH:/usr/sbin:/sbin

needed='qemu-system-x86 busybox-static cpio kmod xz-utils'
for tool in qemu-system-x86_64 busybox cpio modprobe depmod xz; do
    command -v $tool >/dev/null || fail "$tool is missing: apt-get install --no-install-recommends $needed"
done
# The Debian package that has a tool, where one that the studies use is missing.
package_of() {
    case $1 in
        btvirt) echo bluez-test-tools ;;
        hciconfig) echo bluez ;;
        ip | tc | tipc) echo iproute2 ;;
    esac
}
missing= packages=
for tool in $tools; do
    command -v "$tool" >/dev/null || { missing="$missing $tool" packages="$packages $(package_of "$tool")"; }
done
packages=$(echo $packages)
[ -z "$missing" ] || fail "missing on this host:$missing${packages:+. Try: apt-get install --no-install-recommends $packages}"

# --- The kernel, once: Debian's current one, unpacked into the cache and not installed.
unpack_kernel() (
    set -e
    cd "$cache"
    rm -rf package tree
    mkdir package tree
    cd package
    # The mirror drops old versions: the name comes from the package that depends on the current one.
    name=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ { print $2; exit }')
    [ -n "$name" ]
    apt-get -qq -o APT::Sandbox::User=root download "$name" >&2
    # Of the wireless drivers the simulator stays, which no maker's folder holds.
    unused=$(printf -- '--exclude=*/drivers/%s ' gpu media staging scsi iio mtd isdn comedi 'net/wireless/*/*' net/ethernet ata md)
    dpkg --fsys-tarfile ./*.deb | tar -x -C ../tree --exclude='*/kernel/sound' $unused
    cd ..
    rm -r package
    [ -d tree/lib/modules ] || { mkdir -p tree/lib && ln -s ../usr/lib/modules tree/lib/modules; }
    version=$(ls tree/lib/modules)
    depmod -b tree "$version"
    # Unpacked here it starts three seconds sooner than where the guest unpacks it.
    packed=tree/boot/vmlinuz-$version
    at=$(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' "$packed" | head -1 | cut -d: -f1) || true
    [ -z "$at" ] || tail -c +$((at + 1)) "$packed" | xz -dc --single-stream >vmlinux 2>/dev/null || true
    [ "$(head -c4 vmlinux | tail -c3)" = ELF ] || cp "$packed" vmlinux
    echo "$version" >"$ready"
)
# The number changes with what is unpacked.
ready=ready-2
mkdir -p "$cache" && exec 9>"$cache/lock" && flock 9 || fail "$cache: cannot be used as a cache"
if [ ! -e "$cache/$ready" ]; then
    unpack_kernel || true
    [ -e "$cache/$ready" ] || fail "no kernel for the guest: this needs Debian on amd64 and a mirror (apt-get update)"
fi
flock -u 9
version=$(cat "$cache/$ready")

work=$(mktemp -d) || fail 'no temporary directory'
qemu=
trap '[ -z "$qemu" ] || kill $qemu 2>/dev/null; rm -rf "$work"; [ ! -S "$own" ] || rm "$own"' EXIT
trap 'exit 130' INT TERM HUP

# --- What is in the guest.
root=$work/root
mkdir -p "$root"/{dev,proc,sys,run/netns,tmp,etc,mod,bb,command,usr/{bin,sbin,lib,lib64}}
for directory in bin sbin lib lib64; do ln -s usr/$directory "$root/$directory"; done
cp "$(command -v busybox)" "$root/bb/busybox"
# On a merged /usr both names lead to one place, and cpio would not follow the link.
merged() { case $1 in /bin/* | /sbin/* | /lib/* | /lib64/*) echo "/usr$1" ;; *) echo "$1" ;; esac; }
bundle() { # SOURCE DESTINATION
    local to=$root$(merged "$2") library
    mkdir -p "${to%/*}"
    # Symbols are most of a program, and the guest takes its time to unpack it.
    strip -o "$to" "$1" 2>/dev/null || cp -L "$1" "$to" || fail "$1: cannot be put into the guest"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        to=$root$(merged "$library")
        [ -e "$to" ] || { mkdir -p "${to%/*}" && cp -L "$library" "$to"; }
    done
}
# Busybox prefers its own tools to those in PATH; dash does not.
bundle "$(realpath "$(command -v dash)")" /bin/sh
for tool in $tools; do
    bundle "$(command -v "$tool")" "/usr/bin/${tool##*/}"
done
bundle "$program" /usr/bin/linkgauge
wire=
if [ -n "$own" ]; then
    [ ! -e "$own" ] || [ -S "$own" ] || fail "$own: there is something, and no socket"
    modules="virtio_pci virtio_net $modules"
    ends=local.type=unix,local.path=$own,remote.type=unix,remote.path=$other
    # A locally administered address, derived from the socket's name.
    address=$(printf '52:54:%08x' "$(echo "$own" | cksum | cut -d' ' -f1)" | sed 's/\(..\)\(..\)\(..\)\(..\)$/\1:\2:\3:\4/')
    wire="-netdev dgram,id=wire,$ends -device virtio-net-pci,netdev=wire,mac=$address"
fi
number=0
if [ -n "$modules" ]; then
    wanted=$(modprobe -d "$cache/tree" -S "$version" --show-depends -a $modules) || fail "no such kernel module: $modules"
    for module in $(echo "$wanted" | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'); do
        number=$((number + 1))
        to=$root/mod/$(printf %03d $number)-${module##*/}
        case $module in *.xz) xz -dc "$module" >"${to%.xz}" ;; *) cp "$module" "$to" ;; esac
    done
fi
{
    printf exec
    for word; do printf " '%s'" "${word//\'/\'\\\'\'}"; done
} >"$root/command/run"
cat >"$root/init" <<'INIT'
#!/bb/busybox sh
/bb/busybox --install -s /bb
export PATH=/usr/sbin:/usr/bin:/bb HOME=/root TERM=dumb LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm
ln -s /proc/self/fd /dev/fd
for port in 1 2 3; do stty -F /dev/ttyS$port raw -echo -opost clocal 115200; done
echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
for module in /mod/*.ko; do [ ! -e "$module" ] || insmod "$module" 2>/dev/ttyS2; done
ip link set lo up
cd /tmp
/bin/sh /command/run </dev/null >/dev/ttyS1 2>/dev/ttyS2
echo "status $?" >/dev/ttyS3
sync
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$work/initrd" || fail 'the guest cannot be packed'

# --- The guest. A /dev/kvm without hardware opens and then hangs, so the flags of the processor decide. One thread for all
# processors: with one each, a wake-up across them stalls for milliseconds.
machine='-accel tcg,thread=single'
if [ "$virtual" = 1 ]; then
    # An instruction takes 2 ns and idle time is skipped: the guest's times are the same on any host, busy or not.
    machine='-accel tcg,thread=single -icount shift=1,sleep=off'
elif grep -qE '^flags.* (svm|vmx)( |$)' /proc/cpuinfo && [ -w /dev/kvm ]; then
    machine='-accel kvm -accel tcg,thread=multi'
fi
# QEMU truncates what it is given to write to; pipes stand between.
exec 4> >(exec cat) 5> >(exec cat >&2)
timeout -k 2 "$seconds" qemu-system-x86_64 $machine $wire -cpu max -m 512 \
    -M q35,hpet=off,vmport=off,smm=off,usb=off,graphics=off -nodefaults -no-user-config -display none -no-reboot \
    -chardev file,id=console,path="$work/console" -serial chardev:console \
    -chardev file,id=out,path=/dev/fd/4 -serial chardev:out \
    -chardev file,id=err,path=/dev/fd/5 -serial chardev:err \
    -chardev file,id=status,path="$work/status" -serial chardev:status \
    -kernel "$cache/vmlinux" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 oops=panic tsc=reliable \
no_timer_check mitigations=off cryptomgr.notests rcupdate.rcu_expedited=1 raid=noautodetect random.trust_cpu=on \
net.ifnames=0 8250.nr_uarts=4 rdinit=/init" </dev/null >/dev/null 2>"$work/qemu" &
qemu=$!
wait $qemu
ended=$?
qemu=
exec 4>&- 5>&-
wait
status=$(sed -n 's/^status \([0-9]*\).*/\1/p' "$work/status" 2>/dev/null)
[ -z "$status" ] || exit "$status"
[ $ended != 124 ] && [ $ended != 137 ] || fail "the guest was not done after $seconds s"
cat "$work/qemu" >&2
tail -5 "$work/console" >&2
fail "the guest ended before its command (QEMU: $ended)"
