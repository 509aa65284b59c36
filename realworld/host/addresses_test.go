package host

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

func TestLookUpName(t *testing.T) {
	own := []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("192.0.2.1"), net.ParseIP("fe80::1"),
		net.ParseIP("2001:db8::1")}
	parse := func(texts ...string) (ips []net.IP) {
		for _, text := range texts {
			ips = append(ips, net.ParseIP(text))
		}
		return ips
	}
	for _, c := range []struct {
		name     string
		ips      []net.IP
		err      error
		want     string
		answered bool
	}{
		{"own ones in the resolver's order", parse("2001:db8::1", "192.0.2.1"), nil,
			"2001:db8::1 192.0.2.1", true},
		{"loopback, link-local and others", parse("127.0.0.1", "fe80::1", "192.0.2.99"), nil, "", true},
		{"no such name", nil, &net.DNSError{IsNotFound: true}, "", true},
		{"no answer", nil, &net.DNSError{IsTimeout: true}, "", false},
		{"another error", nil, errors.New("x"), "", false},
	} {
		got, answered := lookUpName(t.Context(), "n1",
			func(context.Context, string, string) ([]net.IP, error) { return c.ips, c.err }, own)
		if strings.Join(got, " ") != c.want || answered != c.answered {
			t.Errorf("%s: %v, %v", c.name, got, answered)
		}
	}
	if got, answered := LookUpName(t.Context(), ""); got != nil || answered {
		t.Errorf("no name: %v, %v", got, answered)
	}
}

// The addresses are found again when the kernel's routes or addresses have changed, and each time
// if those are not known.
func TestAddressesAreKept(t *testing.T) {
	found := 0
	c := addressCache{find: func() []string { found++; return []string{"192.0.2.1"} }}
	expect := func(what, root string, want int) {
		t.Helper()
		got := c.get(root)
		if len(got) != 1 || got[0] != "192.0.2.1" || found != want {
			t.Errorf("%s: %v, found %d times, want %d", what, got, found, want)
		}
		got[0] = "changed by the caller"
	}
	root := t.TempDir()
	expect("no files", root, 1)
	expect("no files", root, 2)
	for i, name := range networkFiles {
		writeFiles(t, root, map[string]string{name: "x"})
		expect(name, root, 3+i)
		expect(name, root, 3+i)
	}
	found = 0
	writeFiles(t, root, map[string]string{networkFiles[0]: strings.Repeat("x", networkBytesMax)})
	expect("many routes", root, 1)
	expect("many routes", root, 2)
	writeFiles(t, root, map[string]string{networkFiles[0]: "y"})
	expect("few routes", root, 3)
	expect("few routes", root, 3)
}

// The addresses are at most one of each family, IPv4 first.
func TestAddressesOfThisMachine(t *testing.T) {
	found := addresses()
	if len(found) > 2 {
		t.Fatalf("found %v", found)
	}
	for i, text := range found {
		ip := net.ParseIP(text)
		if ip == nil || !ip.IsGlobalUnicast() || i > 0 && ip.To4() != nil {
			t.Errorf("found %v", found)
		}
	}
}

func TestReadMachine(t *testing.T) {
	root := t.TempDir()
	h := newHarness(t, root)
	h.port.opts.Root, h.port.opts.RootDir = root, root
	if _, err := h.try(&world.ReadMachine{}, time.Minute); err == nil {
		t.Error("no error without a machine")
	}
	writeFiles(t, root, map[string]string{"proc/meminfo": "MemTotal: 2048 kB",
		"sys/devices/system/cpu/online": "0-7"})
	first := h.must(&world.ReadMachine{}).(*world.MachineRead)
	if first.CPUs != 8 || first.MemoryBytes != 2<<20 || first.Machine.RootDirBytes == 0 ||
		!first.NameUnknown {
		t.Errorf("%+v", first)
	}
	writeFiles(t, root, map[string]string{filepath.Join("sys/devices/system/cpu", "online"): "0-15"})
	if read := h.must(&world.ReadMachine{}).(*world.MachineRead); read.CPUs != 16 {
		t.Errorf("later: %+v", read)
	}
}
