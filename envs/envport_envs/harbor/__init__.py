"""The scheme `harbor:`: task folders of Harbor."""
