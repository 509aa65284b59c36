package csi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"seedlet.dev/realworld/inflight"
	"seedlet.dev/world"
)

// toWorldError returns the error of a call, without the secrets of its request.
func toWorldError(ctx context.Context, request any, err error) *world.Error {
	e := inflight.ToWorldError(ctx, world.CallName(request), err, kindOf(err))
	e.Message = shorten(hideSecrets(e.Message, secretsOf(request)), world.CSIErrorBytesMax)
	return e
}

// kindOf returns the kind of an error, as world/csi.go says.
func kindOf(err error) world.ErrorKind {
	if _, is := errors.AsType[*unencodable](err); is {
		return world.KindInvalid
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		return world.KindTimeout
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted:
		return world.KindUnavailable
	case codes.NotFound:
		return world.KindNotFound
	case codes.AlreadyExists:
		return world.KindExists
	case codes.FailedPrecondition:
		return world.KindConflict
	case codes.InvalidArgument, codes.OutOfRange:
		return world.KindInvalid
	case codes.PermissionDenied, codes.Unauthenticated:
		return world.KindRefused
	case codes.Unimplemented:
		return world.KindUnimplemented
	}
	return world.KindInternal
}

// secretsOf returns the values of a request that no text may show.
func secretsOf(request any) []string {
	var secrets, attributes map[string]string
	switch m := request.(type) {
	case *world.StageVolume:
		secrets, attributes = m.Secrets, m.VolumeContext
	case *world.PublishVolume:
		secrets, attributes = m.Secrets, m.VolumeContext
	case *world.ExpandVolume:
		secrets = m.Secrets
	}
	values := []string{attributes[world.CSITokensKey]}
	for _, value := range secrets {
		values = append(values, value)
	}
	return slices.Concat(values, tokensIn(attributes[world.CSITokensKey]),
		tokensIn(secrets[world.CSITokensKey]))
}

// tokensIn returns the tokens in a value of world.CSITokensKey, which a driver takes out of it.
func tokensIn(text string) (tokens []string) {
	var granted map[string]struct {
		Token string `json:"token"`
	}
	if json.Unmarshal([]byte(text), &granted) != nil {
		return nil
	}
	for _, g := range granted {
		tokens = append(tokens, g.Token)
	}
	return tokens
}

const (
	hiddenText = "[redacted]"
	// hiddenMessage replaces a text that may show too many of the values to look for each.
	hiddenMessage = "[the message is redacted, as it may show secrets of the volume]"
	// secretBytesMin is the length from which a value is replaced, and secretLineBytesMin that of one
	// of its lines: a shorter one, as a number or a flag, is in texts by chance.
	secretBytesMin     = 4
	secretLineBytesMin = 8
	// secretFormsMax bounds what is looked for in one text. A secret may have 100,000 lines, and a pod
	// hundreds of volumes with it, all of which fail: each search takes microseconds of all pods.
	secretFormsMax = 128
)

// hideSecrets replaces values in a text, also as a driver may print them: without the space around
// them, line by line, and quoted. Longer ones come first, as they may hold shorter ones. A value of
// which the text does not have all pieces is no work but for reading it.
func hideSecrets(text string, values []string) string {
	if !slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
		return text
	}
	pieces, forms := piecesOf(text), map[string]bool{}
	add := func(form string) {
		if len(form) <= len(text) && len(forms) <= secretFormsMax && mayHave(pieces, form) {
			forms[form] = true
		}
	}
	addBoth := func(value string, bytesMin int) {
		if value = strings.TrimSpace(value); len(value) < bytesMin || len(value) > len(text) {
			return
		}
		if add(value); !isPlain(value) {
			quoted := strconv.Quote(value)
			add(quoted[1 : len(quoted)-1])
		}
	}
	for _, value := range values {
		addBoth(value, secretBytesMin)
		for line := range strings.Lines(value) {
			addBoth(line, secretLineBytesMin)
		}
	}
	if len(forms) > secretFormsMax {
		return hiddenMessage
	}
	longestFirst := slices.SortedFunc(maps.Keys(forms), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x, y))
	})
	for _, form := range longestFirst {
		text = strings.ReplaceAll(text, form, hiddenText)
	}
	return text
}

// piecesOf returns all parts of a text that have secretBytesMin or secretLineBytesMin bytes.
func piecesOf(text string) map[string]bool {
	pieces := map[string]bool{}
	for _, size := range []int{secretBytesMin, secretLineBytesMin} {
		for i := range max(0, len(text)-size+1) {
			pieces[text[i:i+size]] = true
		}
	}
	return pieces
}

// mayHave reports whether a text may have a part: it has all pieces of it, wherever they are.
func mayHave(pieces map[string]bool, part string) bool {
	size := secretLineBytesMin
	if len(part) < size {
		size = secretBytesMin
	}
	for i := 0; i < len(part); i += size {
		if from := min(i, len(part)-size); !pieces[part[from:from+size]] {
			return false
		}
	}
	return true
}

// isPlain reports whether a value is the same when it is quoted, but for the quotes.
func isPlain(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' || r > '~' || r == '"' || r == '\\'
	})
}

// shorten returns valid text of at most so many bytes.
func shorten(text string, bytesMax int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= bytesMax {
		return text
	}
	for bytesMax > 0 && !utf8.RuneStart(text[bytesMax]) {
		bytesMax--
	}
	return text[:bytesMax]
}
