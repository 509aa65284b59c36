package host

import (
	"crypto/rsa"
	"testing"
)

// There are RSA keys of the two sizes that the API has, and of no other.
func TestRSAKeys(t *testing.T) {
	for keyType, bits := range map[string]int{"RSA3072": 3072, "RSA4096": 4096} {
		key, ok := keyOf(keyType, nil).(*rsa.PrivateKey)
		if !ok || key.N.BitLen() != bits {
			t.Errorf("%s: %T", keyType, key)
		}
	}
	if key := keyOf("RSA2048", nil); key != nil {
		t.Errorf("a key of an unknown type: %T", key)
	}
}
