package nodetest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"

	"seedlet.dev/realworld/cleanup"
)

// writeNetwork writes the node's CNI configuration: a bridge of its own with host-local addresses.
// Pods reach the host and each other, and no other network, so no iptables are needed. It returns
// the subnet of the pods.
func writeNetwork(dir string) (netip.Prefix, error) {
	subnet, err := cleanup.FreeSubnet(dir)
	if err != nil {
		return netip.Prefix{}, err
	}
	bridge := map[string]any{
		"type": "bridge", "bridge": cleanup.BridgeName(dir), "isGateway": true, "ipMasq": false,
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": filepath.Join(dir, "ipam"),
			"ranges":  [][]map[string]string{{{"subnet": subnet.String()}}},
		},
	}
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": cleanup.BridgeName(dir), "plugins": []any{bridge},
	}
	data, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("making the CNI configuration: %w", err)
	}
	return subnet, writeFile(filepath.Join(cniPath(dir), "10-seedlet.conflist"), data)
}
