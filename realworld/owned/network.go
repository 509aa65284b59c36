package owned

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// BridgeName is the name of a directory's bridge. It follows from the directory alone, so that a
// bridge whose owner died can be told from another's. The kernel allows 15 bytes.
func BridgeName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "sdl-" + hex.EncodeToString(sum[:4])
}

// HasBridge reports whether a directory's bridge is there.
func HasBridge(dir string) bool {
	_, err := net.InterfaceByName(BridgeName(dir))
	return err == nil
}

// FreeSubnet chooses a private /24 that overlaps no network of this machine. Where the search
// begins follows from the directory, so that those who start at one time do not choose the same.
func FreeSubnet(dir string) (netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("listing the networks of this machine: %w", err)
	}
	var taken []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			taken = append(taken, p)
		}
	}
	return freeSubnet(dir, taken)
}

func freeSubnet(dir string, taken []netip.Prefix) (netip.Prefix, error) {
	sum := sha256.Sum256([]byte(dir))
	for i := range 256 {
		third := byte(int(sum[5]) + i)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200 + sum[4]%50, third, 0}), 24)
		if !slices.ContainsFunc(taken, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free subnet in 10.%d.0.0/16", 200+sum[4]%50)
}
