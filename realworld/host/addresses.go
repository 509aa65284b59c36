package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// lookupTimeout bounds a lookup of the node's name. A name server that does not answer must not
// delay the start of the agent, nor an observation of the rest of the machine.
const lookupTimeout = 5 * time.Second

// addresses returns the machine's address in each family: IPv4 first, if it has both. It is that of
// the interface with the default route, as in the kubelet (ResolveBindAddress), else any that
// others can reach.
func addresses() []string {
	var found []string
	for _, v4 := range []bool{true, false} {
		unspecified := net.IPv6zero
		if v4 {
			unspecified = net.IPv4zero
		}
		ip, err := utilnet.ResolveBindAddress(unspecified)
		if err != nil || ip == nil || (ip.To4() != nil) != v4 {
			ip = firstAddress(v4) // a machine without a default route in this family
		}
		if ip != nil {
			found = append(found, ip.String())
		}
	}
	return found
}

// addressCache keeps the machine's addresses while the kernel's routes and local addresses stay the
// same. To find them the kernel lists every interface, of which each pod has one: on a node with a
// hundred pods that took a tenth of what the agent costs at rest.
type addressCache struct {
	find      func() []string
	mu        sync.Mutex
	network   []byte // as it was when addresses were found; empty if that is not known
	addresses []string
}

// get returns the addresses. root is the root of the kernel's files.
func (c *addressCache) get(root string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	network := readNetwork(root)
	if len(network) == 0 || !bytes.Equal(network, c.network) {
		c.network, c.addresses = network, c.find()
	}
	return slices.Clone(c.addresses)
}

// networkFiles say which routes and local addresses there are. That of the IPv4 addresses lists
// those of interfaces that are up.
var networkFiles = []string{"proc/net/route", "proc/net/fib_trie", "proc/net/ipv6_route",
	"proc/net/if_inet6"}

// networkBytesMax bounds what is compared: a router has many routes.
const networkBytesMax = 256 << 10

// readNetwork returns the kernel's routes and addresses; nothing if they are too many, or cannot be
// read. A kernel without IPv6 does not have its files.
func readNetwork(root string) []byte {
	var all bytes.Buffer
	for _, name := range networkFiles {
		f, err := os.Open(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = all.ReadFrom(io.LimitReader(f, networkBytesMax))
			_ = f.Close() // nothing was written
		}
		if err != nil || all.Len() >= networkBytesMax {
			return nil
		}
	}
	return all.Bytes()
}

// firstAddress returns the first address of a family on any interface that others can reach.
func firstAddress(v4 bool) net.IP {
	for _, ip := range interfaceAddresses() {
		if ip.IsGlobalUnicast() && (ip.To4() != nil) == v4 {
			return ip
		}
	}
	return nil
}

func interfaceAddresses() []net.IP {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var ips []net.IP
	for _, addr := range all {
		if network, ok := addr.(*net.IPNet); ok {
			ips = append(ips, network.IP)
		}
	}
	return ips
}

// lookUpFunc resolves a name.
type lookUpFunc func(ctx context.Context, network, name string) ([]net.IP, error)

// LookUpName returns the addresses of a name that are addresses of this machine and that others can
// reach, in the order of the resolver. It reports whether the resolver has answered; that there is
// no such name is an answer.
func LookUpName(ctx context.Context, name string) ([]string, bool) {
	return lookUpName(ctx, name, net.DefaultResolver.LookupIP, interfaceAddresses())
}

func lookUpName(ctx context.Context, name string, lookUp lookUpFunc, own []net.IP) (
	[]string, bool) {
	if name == "" {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := lookUp(ctx, "ip", name)
	var problem *net.DNSError
	if err != nil {
		return nil, errors.As(err, &problem) && problem.IsNotFound
	}
	var found []string
	for _, ip := range ips {
		for _, mine := range own {
			if ip.IsGlobalUnicast() && ip.Equal(mine) {
				found = append(found, ip.String())
				break
			}
		}
	}
	return found, true
}
