package host

import "net"

// addresses are the machine's own IPs, at most one of each family, IPv4 first: the one that it
// would use to reach others, or the first that others could reach it by.
func addresses() []string {
	var found []string
	for _, family := range []struct{ network, elsewhere string }{
		{"udp4", "192.0.2.1:9"}, {"udp6", "[2001:db8::1]:9"}, // documentation's, never reached
	} {
		ip := outgoing(family.network, family.elsewhere)
		if ip == nil {
			ip = first(family.network == "udp4")
		}
		if ip != nil {
			found = append(found, ip.String())
		}
	}
	return found
}

// outgoing is the address that packets to elsewhere would have as their source. None is sent.
func outgoing(network, elsewhere string) net.IP {
	conn, err := net.Dial(network, elsewhere)
	if err != nil {
		return nil
	}
	defer conn.Close()
	addr, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || !addr.IP.IsGlobalUnicast() {
		return nil
	}
	return addr.IP
}

func first(v4 bool) net.IP {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, addr := range all {
		network, ok := addr.(*net.IPNet)
		if ok && network.IP.IsGlobalUnicast() && (network.IP.To4() != nil) == v4 {
			return network.IP
		}
	}
	return nil
}
