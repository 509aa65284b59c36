package host

import (
	"context"
	"errors"
	"net"
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
