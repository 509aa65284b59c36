package cleanup

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
)

func TestBridge(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("making a bridge needs root, and not -short")
	}
	dir := t.TempDir()
	subnet, err := FreeSubnet(dir)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits())
	t.Cleanup(func() {
		if err := RemoveBridge(dir); err != nil || HasBridge(dir) {
			t.Errorf("removing the bridge: %v", err)
		}
		if err := RemoveBridge(dir); err != nil {
			t.Errorf("removing the bridge again: %v", err)
		}
	})
	if err := MakeBridge(dir, address); err != nil {
		t.Fatal(err)
	}
	made, err := net.InterfaceByName(BridgeName(dir))
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := made.Addrs()
	has := func(a net.Addr) bool { return a.String() == address.String() }
	if err != nil || made.Flags&net.FlagUp == 0 || !slices.ContainsFunc(addrs, has) {
		t.Errorf("flags %v, addresses %v, %v; want the bridge up with %v", made.Flags, addrs, err,
			address)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address.Addr().String(), "0"))
	if err != nil {
		t.Fatalf("listening on the bridge: %v", err)
	}
	_ = l.Close() // only a test of listening
}
