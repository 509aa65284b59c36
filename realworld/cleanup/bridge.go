package cleanup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// BridgeName returns the name of a directory's bridge. The name depends on the directory only, so
// that a bridge whose owner died can be distinguished from others. The kernel allows 15 bytes.
func BridgeName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "sdl-" + hex.EncodeToString(sum[:4])
}

// HasBridge reports whether a directory's bridge exists.
func HasBridge(dir string) bool {
	_, err := net.InterfaceByName(BridgeName(dir))
	return err == nil
}

// FreeSubnet returns a private /24 that overlaps no network of this machine. The search starts at a
// subnet that depends on the directory, so that concurrent callers do not choose the same.
func FreeSubnet(dir string) (netip.Prefix, error) {
	for end := time.Now().Add(addressTime); ; time.Sleep(addressTime / 100) {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("listing the networks of this machine: %w", err)
		}
		var used []netip.Prefix
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				used = append(used, p)
			}
		}
		subnet, err := freeSubnet(dir, used)
		if err == nil || time.Now().After(end) {
			return subnet, err
		}
	}
}

// addressTime is how long it may take to give a bridge its address. Until then the kernel shows it
// with that of its class, and 10.0.0.0/8 leaves no room for a subnet (see MakeBridge).
const addressTime = 2 * time.Second

func freeSubnet(dir string, used []netip.Prefix) (netip.Prefix, error) {
	sum := sha256.Sum256([]byte(dir))
	for i := range 256 {
		third := byte(int(sum[5]) + i)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200 + sum[4]%50, third, 0}), 24)
		if !slices.ContainsFunc(used, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free subnet in 10.%d.0.0/16", 200+sum[4]%50)
}
