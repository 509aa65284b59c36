package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// subIDsUser is the user whose subordinate IDs are set apart for the user namespaces of pods.
const subIDsUser = "kubelet"

// subIDsTimeout bounds a request for subordinate IDs, which may ask a directory service.
const subIDsTimeout = 10 * time.Second

// SubordinateIDs returns the IDs that the administrator has set apart for pods in /etc/subuid and
// /etc/subgid, or in a directory service, for the user "kubelet"; none without that user. If the
// user exists, it is an error if there is no answer: the service may be down, or getsubids, the
// tool that asks, not installed, and other IDs may belong to another user (the kubelet's
// getKubeletMappings).
func SubordinateIDs(ctx context.Context) (first, length uint32, err error) {
	return subordinateIDs(ctx, user.Lookup, "getsubids")
}

func subordinateIDs(ctx context.Context, lookUp func(string) (*user.User, error), tool string) (
	first, length uint32, err error) {
	if _, err := lookUp(subIDsUser); err != nil {
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			return 0, 0, nil
		}
		return 0, 0, fmt.Errorf("looking up the user %s: %w", subIDsUser, err)
	}
	path, err := exec.LookPath(tool)
	if err != nil {
		return 0, 0, fmt.Errorf("the user %s exists, and %s, which tells its subordinate IDs, cannot "+
			"be run: %w", subIDsUser, tool, err)
	}
	ctx, cancel := context.WithTimeout(ctx, subIDsTimeout)
	defer cancel()
	users, err := output(ctx, path, subIDsUser)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the subordinate user IDs of %s: %w", subIDsUser, err)
	}
	groups, err := output(ctx, path, "-g", subIDsUser)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the subordinate group IDs of %s: %w", subIDsUser, err)
	}
	if users != groups {
		return 0, 0, fmt.Errorf("the user %s has the subordinate user IDs %q and group IDs %q, which "+
			"must be the same", subIDsUser, users, groups)
	}
	return parseSubIDs(users)
}

// output returns what a program writes to its standard output.
func output(ctx context.Context, path string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, path, args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(text)), err
}

// parseSubIDs parses the one line "0: kubelet FIRST LENGTH".
func parseSubIDs(text string) (first, length uint32, err error) {
	fields := strings.Fields(text)
	if len(fields) != 4 || strings.Contains(text, "\n") {
		return 0, 0, fmt.Errorf("the subordinate IDs of %s must be one range, and getsubids says %q",
			subIDsUser, text)
	}
	numbers := [2]uint32{}
	for i, field := range fields[2:] {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("the subordinate IDs of %s: %q: %w", subIDsUser, text, err)
		}
		numbers[i] = uint32(n)
	}
	if numbers[1] == 0 {
		return 0, 0, fmt.Errorf("the subordinate IDs of %s: %q has none", subIDsUser, text)
	}
	return numbers[0], numbers[1], nil
}
