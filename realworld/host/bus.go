package host

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
)

// systemBusAddress returns the address of the system bus, as the D-Bus specification says.
func systemBusAddress() string {
	return cmp.Or(os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), "unix:path=/var/run/dbus/system_bus_socket")
}

// busSocket is a socket of a bus, from which descriptors are not received.
type busSocket struct {
	io.Reader
	io.WriteCloser
}

// connectForSignals connects to a bus for signals. Every client of the bus may send any message to
// the connection, with sixteen descriptors each, and godbus forgets those that no value of the
// message names: they would stay open. So the connection does not agree to get any, and the bus
// delivers no message that has one.
func connectForSignals(ctx context.Context, address string,
	signals dbus.SignalHandler) (*dbus.Conn, error) {
	socket, err := dialBus(ctx, address)
	if err != nil {
		return nil, err
	}
	conn, err := dbus.NewConn(&busSocket{bufio.NewReader(socket), socket}, dbus.WithContext(ctx),
		dbus.WithSignalHandler(signals))
	if err != nil {
		_ = socket.Close() // the error says more
		return nil, err
	}
	if err = conn.Auth(nil); err == nil {
		err = conn.Hello()
	}
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, err
	}
	return conn, nil
}

// dialBus connects to the first socket that answers of an address, such as
// "unix:path=/run/bus;unix:abstract=/tmp/bus".
func dialBus(ctx context.Context, address string) (net.Conn, error) {
	err := fmt.Errorf("%q has no address of a Unix socket", address)
	for one := range strings.SplitSeq(address, ";") {
		keys, isUnix := strings.CutPrefix(one, "unix:")
		if !isUnix {
			continue
		}
		for key := range strings.SplitSeq(keys, ",") {
			name, text, _ := strings.Cut(key, "=")
			path, wrong := dbus.UnescapeBusAddressValue(text)
			switch {
			case wrong != nil || name != "path" && name != "abstract":
				continue
			case name == "abstract":
				path = "@" + path
			}
			var socket net.Conn
			if socket, err = (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
				return socket, nil
			}
		}
	}
	return nil, err
}
