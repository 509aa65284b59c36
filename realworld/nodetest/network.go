package nodetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"

	"net"
)

// bridgeName is the name of a node's bridge. It follows from the directory alone, so that a
// bridge whose owner died can be told from another's. The kernel allows 15 bytes.
func bridgeName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "sdl-" + hex.EncodeToString(sum[:4])
}

// writeNetwork writes the node's CNI configuration: a bridge of its own with host-local
// addresses. Pods reach the host and each other; there is no way out, which needs no iptables. It
// returns the addresses of the pods.
func writeNetwork(dir string) (netip.Prefix, error) {
	subnet, err := freeSubnet(dir)
	if err != nil {
		return netip.Prefix{}, err
	}
	bridge := map[string]any{
		"type": "bridge", "bridge": bridgeName(dir), "isGateway": true, "ipMasq": false,
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": filepath.Join(dir, "ipam"),
			"ranges":  [][]map[string]string{{{"subnet": subnet.String()}}},
		},
	}
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": bridgeName(dir), "plugins": []any{bridge},
	}
	data, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("making the CNI configuration: %w", err)
	}
	return subnet, writeFile(filepath.Join(cniPath(dir), "10-seedlet.conflist"), data)
}

// freeSubnet chooses a private /24 that overlaps no network of this machine. Where the search
// begins follows from the directory, so that nodes started at one time do not choose the same.
func freeSubnet(dir string) (netip.Prefix, error) {
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
	sum := sha256.Sum256([]byte(dir))
	for i := range 256 {
		third := byte(int(sum[5]) + i)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200 + sum[4]%50, third, 0}), 24)
		if !overlapsAny(p, taken) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free subnet in 10.%d.0.0/16", 200+sum[4]%50)
}

func overlapsAny(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if p.Overlaps(o) {
			return true
		}
	}
	return false
}
