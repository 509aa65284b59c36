package cleanup

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bridges are created and removed by ioctl, because iproute2 may not be installed.

// MakeBridge creates the bridge of a directory, with an address of its own, and sets it up.
func MakeBridge(dir string, address netip.Prefix) error {
	name := BridgeName(dir)
	fail := func(doing string, err error) error {
		return fmt.Errorf("%s bridge %s: %w", doing, name, err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail("making", err)
	}
	defer func() { _ = unix.Close(socket) }() // nothing was written to it
	if err := bridgeCall(socket, unix.SIOCBRADDBR, name); err != nil {
		return fail("making", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fail("making", err)
	}
	ones := ^uint32(0) << (32 - address.Bits())
	mask := [4]byte{byte(ones >> 24), byte(ones >> 16), byte(ones >> 8), byte(ones)}
	for _, set := range []struct {
		call  uint
		value [4]byte
	}{{unix.SIOCSIFADDR, address.Addr().As4()}, {unix.SIOCSIFNETMASK, mask}} {
		if err := request.SetInet4Addr(set.value[:]); err != nil {
			return fail("giving an address to", err)
		}
		if err := unix.IoctlIfreq(socket, set.call, request); err != nil {
			return fail("giving an address to", err)
		}
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		return fail("taking up", err)
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fail("taking up", err)
	}
	return nil
}

// RemoveBridge sets the bridge of a directory down and deletes it. It succeeds if the bridge does
// not exist.
func RemoveBridge(dir string) error {
	name := BridgeName(dir)
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	defer func() { _ = unix.Close(socket) }() // nothing was written to it
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return nil
		}
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	request.SetUint16(request.Uint16() &^ unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("taking bridge %s down: %w", name, err)
	}
	err = bridgeCall(socket, unix.SIOCBRDELBR, name)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	return nil
}

// bridgeCall creates or deletes a bridge by its name.
func bridgeCall(socket int, call uintptr, name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), call,
		uintptr(unsafe.Pointer(text)))
	if errno != 0 {
		return errno
	}
	return nil
}
